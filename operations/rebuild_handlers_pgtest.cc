// A rebuild of a group with handlers: the live slot calls them, the shadow does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "operations/testing/rebuild_fixture.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"
#include "tests/support/http_test_server.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

using ::testing::Each;
using testing::HttpTestServer;
using ::testing::Pair;

std::string GroupFile(const HttpTestServer& server) {
  return fmt::format(R"(
group: feed
subscription: items.feed
projections:
  - {{name: items, table: rm.items, key: id, version: version, updated_at: updated_at,
     events: {{ItemChanged: {{replace: {{a: a}}}}}}}}
handlers:
  - {{name: hook, call: '{}', events: [ItemChanged], allow_private: true, replay: call}}
  - {{name: log, call: rm.on_item, events: [ItemChanged]}}
  - {{name: once, call: rm.once, events: [ItemChanged], replay: skip}}
)",
                     server.url("/hook"));
}

constexpr char kFunctions[] = R"(
CREATE TABLE rm.log (id text, version bigint, replay bool);
CREATE TABLE rm.once_log (id text, version bigint);
CREATE FUNCTION rm.on_item(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rm.log SELECT e.aggregate_id, e.version, e.replay FROM unnest(events) e $$;
CREATE FUNCTION rm.once(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rm.once_log SELECT e.aggregate_id, e.version FROM unnest(events) e $$)";

TEST(RebuildWithHandlers, CallsNobodyAgainNeitherInTheShadowNorAfterTheSwapNorBack) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  RebuildWorld world(/*history=*/true, GroupFile(server));
  world.database.Run(kFunctions);
  world.StartRunner("one");
  world.Publish(5);
  ASSERT_TRUE(world.Settle());
  const auto calls = [&] {
    std::map<std::string, int> times;
    for (const auto& seen : server.seen()) ++times[seen.headers.at("idempotency-key")];
    return times;
  };
  auto driver = world.NewDriver();
  ASSERT_TRUE(world.Begin(*driver.rebuild).ok());
  ASSERT_EQ(world.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_EQ(world.Subscription(), std::string(kSubscription) + ".slot2");
  world.Publish(2);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(calls().size(), static_cast<size_t>(7 * RebuildWorld::kKeys));
  EXPECT_THAT(calls(), Each(Pair(::testing::_, 1)));
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.log WHERE NOT replay"),
            7 * RebuildWorld::kKeys);
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.log WHERE replay"),
            5 * RebuildWorld::kKeys);
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.once_log"), 7 * RebuildWorld::kKeys);
  // The old slot gets what came since by its own subscription: for its handlers it is a replay.
  ASSERT_EQ(driver.rebuild->Rollback("ada", "a test"), absl::OkStatus());
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.once_log"), 7 * RebuildWorld::kKeys);
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.log WHERE NOT replay"),
            7 * RebuildWorld::kKeys);
  for (const auto& seen : server.seen()) {
    if (seen.headers.at("lockstep-replay") == "true") continue;
    EXPECT_LE(calls()[seen.headers.at("idempotency-key")], 2);
  }
}

// What the live slot has not had yet, the shadow must not have either: it would be known after the
// swap, and nobody would ever call the handlers.
TEST(RebuildWithHandlers, WhatNobodyHasHandledIsCalledAfterTheSwap) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  RebuildWorld world(/*history=*/true, GroupFile(server));
  world.database.Run(kFunctions);
  world.StartRunner("one");
  world.Publish(2);
  ASSERT_TRUE(world.Settle());
  world.StopRunners();
  world.Publish(3);  // nobody has these
  auto driver = world.NewDriver();
  ASSERT_TRUE(world.Begin(*driver.rebuild).ok());
  ASSERT_EQ(world.Resume(*driver.rebuild, /*despite_differences=*/true), absl::OkStatus());
  world.StartRunner("two");
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.database.QueryInt("SELECT count(*) FROM rm.once_log"), 5 * RebuildWorld::kKeys);
  EXPECT_EQ(server.seen().size(), static_cast<size_t>(5 * RebuildWorld::kKeys));
}

}  // namespace
}  // namespace lockstep::operations
