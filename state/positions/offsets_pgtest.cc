#include <gmock/gmock.h>

#include <chrono>
#include <memory>

#include "postgres/migrator.h"
#include "sql/migrations.h"
#include "state/positions/offsets.h"
#include "state/testing/memory_offset_provider.h"
#include "tests/support/test_database.h"

namespace lockstep::state {
namespace {

using ::testing::Eq;

const ConsumerGroup kGroup("feed");

WallTime At(int seconds) { return WallTime(std::chrono::seconds(1'800'000'000 + seconds)); }

LaneOffset Offset(int lane, int seconds, const std::string& message_id,
                  const std::string& instance = "one") {
  return {.group = kGroup,
          .instance = instance,
          .lane = lane,
          .subscription = "s",
          .position = {At(seconds), MessageId(message_id)},
          .epoch = 1,
          .lag = Millis(seconds)};
}

// A place where offsets are kept, with a way to run something in a transaction.
class Store {
 public:
  virtual ~Store() = default;
  virtual OffsetProvider& provider() = 0;
  virtual absl::Status In(const std::function<absl::Status(postgres::Transaction*)>& work,
                          bool commit) = 0;
  virtual int64_t audits() = 0;
};

class MemoryStore : public Store {
 public:
  OffsetProvider& provider() override { return provider_; }
  absl::Status In(const std::function<absl::Status(postgres::Transaction*)>& work, bool) override {
    return work(nullptr);
  }
  int64_t audits() override { return static_cast<int64_t>(provider_.audit().size()); }

 private:
  MemoryOffsetProvider provider_;
};

class PostgresStore : public Store {
 public:
  PostgresStore() : connection_(database_.Connect()), provider_(Schema("st")) {
    EXPECT_TRUE(postgres::Migrator(*connection_, "st", sql::StateMigrations()).Up().ok());
    database_.Run(
        "INSERT INTO st.instances (group_name, instance, epoch, lanes) "
        "VALUES ('feed', 'one', 1, 4), ('feed', 'two', 1, 4)");
  }
  OffsetProvider& provider() override { return provider_; }
  absl::Status In(const std::function<absl::Status(postgres::Transaction*)>& work,
                  bool commit) override {
    auto transaction = connection_->Begin();
    const absl::Status done = work(&*transaction);
    if (!done.ok()) return done;
    return commit ? transaction->Commit() : transaction->Rollback();
  }
  int64_t audits() override { return database_.QueryInt("SELECT count(*) FROM st.audit"); }

  testing::TestDatabase database_;
  std::unique_ptr<postgres::Connection> connection_;
  Offsets provider_;
};

// What every OffsetProvider promises.
class OffsetContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("postgres")) {
      store_ = std::make_unique<PostgresStore>();
    } else {
      store_ = std::make_unique<MemoryStore>();
    }
  }
  absl::Status Save(const LaneOffset& offset, bool commit = true) {
    return store_->In([&](auto* t) { return store_->provider().Save(t, offset); }, commit);
  }
  std::optional<GroupOffset> Load(const ConsumerGroup& group = kGroup) {
    std::optional<GroupOffset> loaded;
    const absl::Status done = store_->In(
        [&](auto* t) {
          auto result = store_->provider().Load(t, group);
          if (result.ok()) loaded = *result;
          return result.status();
        },
        true);
    EXPECT_TRUE(done.ok()) << done;
    return loaded;
  }
  absl::Status Reset(const ResetRecord& record) {
    return store_->In([&](auto* t) { return store_->provider().Reset(t, record); }, true);
  }

  std::unique_ptr<Store> store_;
};

TEST_P(OffsetContract, HasNothingForAGroupThatCommittedNothing) { EXPECT_FALSE(Load()); }

TEST_P(OffsetContract, LoadsWhatWasSaved) {
  ASSERT_TRUE(Save(Offset(0, 5, "m5")).ok());
  const auto loaded = Load();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->position.publish_time, At(5));
  EXPECT_EQ(loaded->position.message_id, MessageId("m5"));
  EXPECT_EQ(loaded->subscription, "s");
  EXPECT_EQ(loaded->updated_by, "one");
  EXPECT_FALSE(Load(ConsumerGroup("other")));
}

TEST_P(OffsetContract, RefusesToMoveBackwardsWithoutFailing) {
  ASSERT_TRUE(Save(Offset(0, 5, "m5")).ok());
  for (const auto& [seconds, id] : {std::pair(4, "m9"), std::pair(5, "m4"), std::pair(5, "m5")}) {
    EXPECT_TRUE(Save(Offset(0, seconds, id)).ok());
    EXPECT_EQ(Load()->position.message_id, MessageId("m5")) << "after " << id;
  }
  EXPECT_TRUE(Save(Offset(0, 5, "m6")).ok());
  EXPECT_EQ(Load()->position.message_id, MessageId("m6"));
}

TEST_P(OffsetContract, AnswersTheLeastOfTheLanes) {
  ASSERT_TRUE(Save(Offset(0, 9, "m9")).ok());
  ASSERT_TRUE(Save(Offset(1, 3, "m3")).ok());
  ASSERT_TRUE(Save(Offset(0, 7, "m7", "two")).ok());
  EXPECT_EQ(Load()->position.message_id, MessageId("m3"));
  EXPECT_EQ(Load()->lag, Millis(9));
}

TEST_P(OffsetContract, ResetsBackwardsAndWritesTheAudit) {
  ASSERT_TRUE(Save(Offset(0, 9, "m9")).ok());
  ASSERT_TRUE(Reset({.group = kGroup,
                     .subscription = "s",
                     .to = Position{At(2), MessageId("m2")},
                     .epoch = 2,
                     .operator_name = "ann",
                     .reason = "bad deploy"})
                  .ok());
  EXPECT_EQ(Load()->position.message_id, MessageId("m2"));
  EXPECT_EQ(Load()->epoch, 2);
  EXPECT_EQ(store_->audits(), 1);
  // What a lane commits afterwards counts, also before where the group once was.
  ASSERT_TRUE(Save(Offset(0, 4, "m4")).ok());
  EXPECT_EQ(Load()->position.message_id, MessageId("m4"));
}

TEST_P(OffsetContract, ResetsToNothing) {
  ASSERT_TRUE(Save(Offset(0, 9, "m9")).ok());
  ASSERT_TRUE(Reset({.group = kGroup, .subscription = "s", .operator_name = "ann"}).ok());
  EXPECT_FALSE(Load());
}

INSTANTIATE_TEST_SUITE_P(Everywhere, OffsetContract, ::testing::Values("memory", "postgres"),
                         [](const auto& test) { return test.param; });

TEST(PostgresOffsets, AreSavedInTheCallersTransaction) {
  PostgresStore store;
  ASSERT_TRUE(store
                  .In([&](auto* t) { return store.provider().Save(t, Offset(0, 5, "m5")); },
                      /*commit=*/false)
                  .ok());
  EXPECT_EQ(store.database_.QueryInt("SELECT count(*) FROM st.offsets"), 0);
}

TEST(PostgresOffsets, OfADeadInstanceNoLongerHoldTheGroupBack) {
  PostgresStore store;
  const auto save = [&](const LaneOffset& offset) {
    ASSERT_TRUE(store.In([&](auto* t) { return store.provider().Save(t, offset); }, true).ok());
  };
  save(Offset(0, 1, "m1", "two"));
  save(Offset(0, 9, "m9", "one"));
  store.database_.Run(
      "UPDATE st.instances SET seen_at = now() - interval '1 hour' "
      "WHERE instance = 'two'");
  EXPECT_EQ(store.database_.Query("SELECT message_id FROM st.group_offsets").Text(0, 0), "m9");
}

// Of a reset or of somebody who ended before them: the group has come further since.
TEST(PostgresOffsets, OfWhoStoppedLastCountWhenNobodyIsLeft) {
  PostgresStore store;
  const auto in = [&](const auto& work) { ASSERT_TRUE(store.In(work, true).ok()); };
  const auto group_offset = [&] {
    return std::string(store.database_.Query("SELECT message_id FROM st.group_offsets").Text(0, 0));
  };
  in([&](auto* t) {
    return store.provider().Reset(t, {.group = kGroup,
                                      .subscription = "s",
                                      .to = Position{At(1), MessageId("target")},
                                      .epoch = 1,
                                      .operator_name = "ann"});
  });
  EXPECT_EQ(group_offset(), "target") << "nobody has committed since";
  in([&](auto* t) { return store.provider().Save(t, Offset(0, 3, "m3", "one")); });
  store.database_.Run("UPDATE st.offsets SET updated_at = now() - interval '1 hour'");
  in([&](auto* t) { return store.provider().Save(t, Offset(0, 9, "m9", "two")); });
  in([&](auto* t) { return store.provider().Save(t, Offset(1, 8, "m8", "two")); });
  store.database_.Run("DELETE FROM st.instances");  // as a stop does
  EXPECT_EQ(group_offset(), "m8");
}

// One with a fixed name may come back with fewer lanes.
TEST(PostgresOffsets, OfALaneThatIsNoMoreDoNotHoldTheGroupBack) {
  PostgresStore store;
  for (const auto& offset : {Offset(0, 9, "m9"), Offset(1, 8, "m8"), Offset(2, 1, "m1")}) {
    ASSERT_TRUE(store.In([&](auto* t) { return store.provider().Save(t, offset); }, true).ok());
  }
  store.database_.Run("UPDATE st.instances SET lanes = 2");
  EXPECT_EQ(store.database_.Query("SELECT message_id FROM st.group_offsets").Text(0, 0), "m8");
}

// It goes on telling that it is there.
TEST(PostgresOffsets, OfAHaltedInstanceCountOnlyWhereNobodyGoesOn) {
  PostgresStore store;
  for (const auto& offset :
       {Offset(0, 1, "m1", "two"), Offset(1, 2, "m2", "two"), Offset(0, 9, "m9", "one")}) {
    ASSERT_TRUE(store.In([&](auto* t) { return store.provider().Save(t, offset); }, true).ok());
  }
  const auto group_offset = [&] {
    return std::string(store.database_.Query("SELECT message_id FROM st.group_offsets").Text(0, 0));
  };
  EXPECT_EQ(group_offset(), "m1");
  store.database_.Run("UPDATE st.instances SET state = 'halted' WHERE instance = 'two'");
  EXPECT_EQ(group_offset(), "m9");
  store.database_.Run("UPDATE st.instances SET state = 'halted'");
  EXPECT_EQ(group_offset(), "m1") << "what it had in hand was not applied";
}

TEST(PostgresOffsets, OfALaneWithNothingInHandDoNotHoldTheGroupBack) {
  PostgresStore store;
  const auto save = [&](const LaneOffset& offset) {
    ASSERT_TRUE(store.In([&](auto* t) { return store.provider().Save(t, offset); }, true).ok());
  };
  const auto group_offset = [&] {
    return std::string(store.database_.Query("SELECT message_id FROM st.group_offsets").Text(0, 0));
  };
  save(Offset(0, 1, "m1"));
  save(Offset(1, 5, "m5"));
  save(Offset(2, 9, "m9"));
  EXPECT_EQ(group_offset(), "m1");
  store.database_.Run("UPDATE st.instances SET idle_lanes = '{0}'");
  EXPECT_EQ(group_offset(), "m5") << "the least of those that have work";
  store.database_.Run("UPDATE st.instances SET idle_lanes = '{0,1,2}'");
  EXPECT_EQ(group_offset(), "m9") << "nothing is in hand: all of it is done";
}

}  // namespace
}  // namespace lockstep::state
