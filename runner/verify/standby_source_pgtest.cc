// A source whose hot standby is read: backfills may, and outlive its recovery conflicts; a
// comparison is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "postgres/migrator.h"
#include "projections/testing/test_group.h"
#include "publisher/backfill/worker.h"
#include "runner/testing/cluster_world.h"
#include "runner/verify/range_step.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"
#include "verify/session.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

constexpr char kDeclared[] = R"(backfill: items
outbox: shop.outbox
topic: items
{source}
key: [id]
aggregate_type: item
aggregate_id: id
version: version
event_type: Saved
payload:
  fields: {{id: id}}
)";

class StandbySource : public ::testing::Test {
 protected:
  static constexpr int kRows = 1'000;

  StandbySource() {
    // Of the standby, which is made out of this one: replay waits for no query.
    cluster_.Admin("ALTER SYSTEM SET max_standby_streaming_delay = 0");
    Run("SELECT 1", /*migrate=*/true);
    Run(
        fmt::format("SELECT lockstep.create_outbox('shop.outbox');"
                    "CREATE TABLE shop.items (id bigint PRIMARY KEY, version int) WITH "
                    "(autovacuum_enabled = off);"
                    "INSERT INTO shop.items SELECT g, 1 FROM generate_series(1, {}) g;"
                    "CREATE FUNCTION shop.slow(bigint) RETURNS bool VOLATILE COST 100000 LANGUAGE "
                    "plpgsql AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN true; END $$",
                    kRows));
    EXPECT_TRUE(bus_.admin().CreateTopic({.name = kTopic}).ok());
    cluster_.AddStandby(/*synchronous=*/false);
    standby_ = *postgres::Connection::Open({.url = cluster_.standby_url()});
  }
  void Run(const std::string& sql, bool migrate = false) {
    auto connection = postgres::Connection::Open({.url = cluster_.url()});
    ASSERT_TRUE(connection.ok()) << connection.status();
    if (migrate) {
      ASSERT_TRUE(postgres::Migrator(**connection, "lockstep", sql::OutboxMigrations()).Up().ok());
    }
    const absl::Status ran = (*connection)->Run(sql);
    EXPECT_TRUE(ran.ok()) << ran;
  }
  static publisher::Declaration Declared(const std::string& source) {
    const projections::TempFile file("items.yaml",
                                     fmt::format(kDeclared, fmt::arg("source", source)));
    auto loaded = publisher::LoadDeclaration(file.path());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : publisher::Declaration();
  }
  std::unique_ptr<publisher::BackfillWorker> Worker() {
    return std::make_unique<publisher::BackfillWorker>(
        publisher::BackfillWorker::Options{.database = cluster_.url(),
                                           .replica = cluster_.standby_url(),
                                           .instance = "a",
                                           .outboxes = {"shop.outbox"},
                                           .turn = Millis(600'000)},
        *publisher_, [](const std::string&) { return std::string(kTopic); }, metrics_);
  }
  std::set<std::string> Sent() const {
    std::set<std::string> ids;
    for (const auto& one : bus_.published()) ids.insert(one.message.ordering_key);
    return ids;
  }
  int64_t Conflicts() {
    return standby_
        ->Number(
            "SELECT sum(confl_snapshot + confl_lock + confl_bufferpin)::bigint FROM "
            "pg_stat_database_conflicts")
        .value_or(0);
  }

  Cluster cluster_;
  testing::FakeBus bus_;
  MetricsRegistry metrics_;
  const std::unique_ptr<pubsub::Publisher> publisher_ = bus_.NewPublisher({});
  std::unique_ptr<postgres::Connection> standby_;
};

TEST_F(StandbySource, AComparisonIsRefusedWithASentence) {
  ASSERT_TRUE(verify::MakeReadOnly(*standby_).ok());
  EXPECT_THAT(std::string(verify::RefuseStandby(*standby_).message()),
              HasSubstr("the source's database is a standby"));
  const auto primary = postgres::Connection::Open({.url = cluster_.url()});
  EXPECT_TRUE(verify::RefuseStandby(**primary).ok());
}

TEST_F(StandbySource, ABackfillReadsItsPagesThere) {
  const auto primary = postgres::Connection::Open({.url = cluster_.url()});
  publisher::BackfillStore store(**primary);
  // Committed before the backfill is made; the standby may replay it later, and is waited for.
  Run("INSERT INTO shop.items VALUES (5000, 1)");
  const auto id = store.Create(Declared("table: shop.items"), 0, "ann", "");
  ASSERT_TRUE(id.ok()) << id.status();
  const auto turn = Worker()->Turn();
  ASSERT_TRUE(turn.ok() && *turn) << turn.status();
  EXPECT_EQ(store.Find(*id)->state, "done") << store.Find(*id)->last_error;
  EXPECT_EQ(Sent().size(), kRows + 1U);
  EXPECT_TRUE(Sent().contains("5000"));
}

// VACUUM on the primary takes rows away that a page on the standby may still see.
TEST_F(StandbySource, APageThatReplayCancelsIsReadAgainAndSmaller) {
  const auto primary = postgres::Connection::Open({.url = cluster_.url()});
  publisher::BackfillStore store(**primary);
  auto declaration = Declared("query: \"SELECT * FROM shop.items WHERE shop.slow(id)\"");
  declaration.chunk = Millis(400);  // pages of some hundred rows, which last
  const auto id = store.Create(declaration, 0, "ann", "");
  ASSERT_TRUE(id.ok()) << id.status();
  std::atomic<bool> done = false;
  absl::StatusOr<bool> turn = false;
  std::thread working([&] {
    turn = Worker()->Turn();
    done = true;
  });
  // Once it has begun and a page is being read there.
  EXPECT_TRUE(testing::Eventually([&] { return done || !Sent().empty(); }));
  while (!done && Conflicts() == 0) {
    Run("UPDATE shop.items SET version = version");
    Run("VACUUM shop.items");
  }
  working.join();
  EXPECT_GT(Conflicts(), 0) << "it was through before anything was in its way";
  ASSERT_TRUE(turn.ok() && *turn) << turn.status();
  auto record = store.Find(*id);
  if (record->last_error.find("connection") != std::string::npos) {
    // Between two statements replay ends the whole session, and that is a try that failed.
    EXPECT_TRUE(testing::Eventually([&] {
      const auto again = Worker()->Turn();
      record = store.Find(*id);
      return !again.ok() || record->state == "done";
    }));
  } else {
    EXPECT_EQ(record->failures, 0) << record->last_error;
  }
  EXPECT_EQ(record->state, "done") << record->last_error;
  EXPECT_EQ(Sent().size(), static_cast<size_t>(kRows));
}

}  // namespace
}  // namespace lockstep::runner
