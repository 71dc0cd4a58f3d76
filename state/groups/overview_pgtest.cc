#include <gmock/gmock.h>

#include "postgres/migrator.h"
#include "sql/migrations.h"
#include "state/groups/epochs.h"
#include "state/groups/overview.h"
#include "tests/support/test_database.h"

namespace lockstep::state {
namespace {

class OverviewTest : public ::testing::Test {
 protected:
  OverviewTest() : connection_(database_.Connect()) {
    EXPECT_TRUE(postgres::Migrator(*connection_, "st", sql::StateMigrations()).Up().ok());
    const Epochs epochs(schema_, ConsumerGroup("feed"));
    EXPECT_TRUE(epochs.LoadOrCreate(*connection_, "sub", {}, "test").ok());
    database_.Run("UPDATE st.consumer_groups SET seek_state = 'done'");
  }
  void Instance(const std::string& name, const std::string& state) {
    database_.Run(
        "INSERT INTO st.instances (group_name, instance, epoch, lanes, lag_ms, state) "
        "SELECT group_name, '" +
        name + "', epoch, 1, 0, '" + state +
        "' FROM st.consumer_groups ON CONFLICT (group_name, instance) DO UPDATE SET "
        "state = EXCLUDED.state, seen_at = now()");
  }
  bool IsThrough() {
    const auto answer = Overview(schema_).Through(*connection_, "feed");
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && (*answer)[0].OptionalTime("through").has_value();
  }

  testing::TestDatabase database_;
  Schema schema_{"st"};
  std::unique_ptr<postgres::Connection> connection_;
};

// Such a one reports no lag, since it knows of nothing.
TEST_F(OverviewTest, AnInstanceThatIsNotConnectedIsThroughNothing) {
  EXPECT_FALSE(IsThrough());
  Instance("a", "running");
  EXPECT_TRUE(IsThrough());
  for (const char* const state : {"starting", "no stream", ""}) {
    Instance("b", state);
    EXPECT_FALSE(IsThrough()) << state;
  }
  for (const char* const state : {"quiet", "behind", "halted", "waiting"}) {
    Instance("b", state);
    EXPECT_TRUE(IsThrough()) << state;
  }
}

// It wrote while the server's clock was an hour ahead, and ended: whoever lives writes each second.
TEST_F(OverviewTest, AnInstanceOfTheFutureIsGone) {
  Instance("a", "running");
  Instance("b", "no stream");
  database_.Run("UPDATE st.instances SET seen_at = now() + interval '1 hour' WHERE instance = 'b'");
  EXPECT_TRUE(IsThrough());
  const auto lags = Overview(schema_).Lags(*connection_);
  ASSERT_TRUE(lags.ok()) << lags.status();
  EXPECT_EQ((*lags)[0].Int("instances"), 1);
}

}  // namespace
}  // namespace lockstep::state
