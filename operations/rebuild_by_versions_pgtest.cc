// Rebuilds of a group that knows events again by their versions, into one, and out of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operations/testing/rebuild_fixture.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"

namespace lockstep::operations {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kItemsAlone[] = R"(
group: feed
subscription: items.feed
projections:
  - {name: items, table: rm.items, key: id, version: version, updated_at: updated_at,
     events: {ItemChanged: {replace: {a: a}}}}
)";

class RebuildByVersions : public ::testing::Test {
 protected:
  void Run(runner::InboxMode inbox) {
    world_.StopRunners();
    world_.options.on_gap = runner::OnGap::kPark;
    world_.options.inbox = inbox;
    world_.StartRunner("one");
    world_.StartRunner("two");
  }
  void Rebuild() {
    auto driver = world_.NewDriver();
    ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
    ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
    ASSERT_EQ(driver.rebuild->Finish(/*now=*/true), absl::OkStatus());
  }
  std::string Kind() {
    return std::string(
        world_.database.Query("SELECT inbox FROM feed_state.slots WHERE state = 'active'")
            .Text(0, 0));
  }
  // So many rows a new version of every key adds to the inbox.
  int64_t Grows() {
    const char kRows[] = "SELECT count(*) FROM feed_state.inbox";
    const int64_t before = world_.database.QueryInt(kRows);
    world_.Publish(1);
    EXPECT_TRUE(world_.Settle());
    return world_.database.QueryInt(kRows) - before;
  }

  RebuildWorld world_{/*history=*/true, kItemsAlone};
};

TEST_F(RebuildByVersions, UnderLoadReadersNoticeNothing) {
  Run(runner::InboxMode::kAggregate);
  world_.Publish(5);
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(world_.database.QueryInt("SELECT count(*) FROM feed_state.inbox"), 0);
  world_.StartLoad();
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_FALSE(driver.rebuild->last_swap()->differs());
  EXPECT_EQ(Kind(), "aggregate");
  const int64_t version = world_.database.QueryInt("SELECT min(version) FROM rm.items");
  ASSERT_TRUE(
      world_.Await(fmt::format("SELECT (min(version) > {})::int FROM rm.items", version + 5), 1));
  world_.AllowStepBack();
  ASSERT_EQ(driver.rebuild->Rollback("ada", "a test"), absl::OkStatus());
  world_.StopLoad();
  EXPECT_THAT(world_.complaints(), IsEmpty());
  EXPECT_TRUE(world_.Settle());
  EXPECT_EQ(Kind(), "aggregate");
}

TEST_F(RebuildByVersions, BeginsWithItAndEndsIt) {
  Run(runner::InboxMode::kEvent);
  world_.Publish(3);
  ASSERT_TRUE(world_.Settle());
  Run(runner::InboxMode::kAggregate);
  EXPECT_EQ(Grows(), RebuildWorld::kKeys) << "its generation was begun by events";
  Rebuild();
  EXPECT_EQ(Kind(), "aggregate");
  EXPECT_EQ(Grows(), 0);
  EXPECT_EQ(world_.database.QueryInt("SELECT count(*) FROM feed_state.key_state WHERE last_event "
                                     "IS NULL"),
            0)
      << "a fork is still told";
  Run(runner::InboxMode::kEvent);
  EXPECT_EQ(Grows(), 0);
  Rebuild();
  EXPECT_EQ(Kind(), "followed");
  EXPECT_EQ(Grows(), RebuildWorld::kKeys);
}

TEST_F(RebuildByVersions, LacksNothingThatTheLiveTablesHave) {
  Run(runner::InboxMode::kAggregate);
  world_.Publish(2);
  ASSERT_TRUE(world_.Settle());
  // It came, and the topic does not have it any longer.
  world_.database.Run(
      "INSERT INTO feed_state.key_state (generation, aggregate_key, settled_version) "
      "SELECT generation, 'item/gone', 3 FROM feed_state.active_slots");
  world_.database.Run(
      "UPDATE feed_state.key_state SET updated_at = now() - interval '1 minute' "
      "WHERE aggregate_key = 'item/gone'");
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  EXPECT_THAT(std::string(MessageOf(world_.Resume(*driver.rebuild))),
              HasSubstr("1 events that the live tables have did not come again"));
  EXPECT_EQ(world_.Subscription(), runner::kSubscription);
}

TEST_F(RebuildByVersions, IsRefusedWhereItDoesNotFit) {
  Run(runner::InboxMode::kAggregate);
  world_.Publish(1);
  ASSERT_TRUE(world_.Settle());
  world_.options.on_gap = runner::OnGap::kDeclared;
  auto driver = world_.NewDriver();
  EXPECT_THAT(std::string(MessageOf(world_.Begin(*driver.rebuild))),
              HasSubstr("set on_gap: park, or set inbox: event"));
}

}  // namespace
}  // namespace lockstep::operations
