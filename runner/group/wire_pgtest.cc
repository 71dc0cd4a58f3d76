// What Pub/Sub does to a runner, over gRPC: lost and refused acks, leases that run out in the
// middle of a batch, redelivery cascades, duplicates, streams that break, no order at all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runner/testing/wire_world.h"
#include "tests/support/lost_stream.h"

namespace lockstep::runner {
namespace {

constexpr Millis kQuiet{300};

void ExpectEachOnce(WireWorld& world, int keys, int versions) {
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), keys);
  EXPECT_EQ(world.Count("SELECT min(version) FROM rm.items"), versions);
  EXPECT_EQ(world.Count("SELECT min(n) FROM rm.counters"), versions);
  EXPECT_EQ(world.Count("SELECT max(n) FROM rm.counters"), versions) << "counted twice";
  EXPECT_EQ(world.Disorder(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
}

TEST(Wire, LostAcksBringEverythingAgainAndNothingTwice) {
  WireWorld world;
  world.server.faults().Set({.drop_acks = 0.5, .duplicate = 0.1});
  const auto group = world.NewGroup();
  world.Publish(Events(10, 20));
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT sum(n) FROM rm.counters") == 200; }));
  ASSERT_TRUE(world.Await([&] { return group->DrainedFor(kQuiet); }));
  const int64_t before = group->status().counts.duplicates;
  world.server.faults().Set({});
  world.ExpireLeases();
  // A lost ack brings back the message and every later one of its key, acked or not.
  ASSERT_TRUE(world.Await([&] { return group->status().counts.duplicates > before; }));
  ASSERT_TRUE(world.Await([&] { return group->DrainedFor(kQuiet); }));
  ExpectEachOnce(world, 10, 20);
  // Now all are acked: nothing comes any more.
  const int64_t settled = group->status().counts.deliveries;
  world.ExpireLeases();
  world.Publish({{.id = "last"}});
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 11; }));
  EXPECT_EQ(group->status().counts.deliveries, settled + 1);
}

// The server counts them as outstanding until they come again: with full hands it would send
// nothing until the leases run out, which here they never do.
TEST(Wire, AcksThatAreNotTakenInTimeHoldNothingUp) {
  WireWorld world;
  world.options.max_outstanding_messages = 4;
  world.options.ack_fence = Millis(300);
  world.server.faults().Set({.refuse = 1, .refuse_method = "Acknowledge"});
  const auto group = world.NewGroup();
  world.Publish(Events(4, 5));
  ASSERT_TRUE(world.Await([&] { return group->status().counts.ack_failures > 0; }));
  world.server.faults().Set({});
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT sum(n) FROM rm.counters") == 20; }));
  ASSERT_TRUE(world.Await([&] { return group->DrainedFor(kQuiet); }));
  ExpectEachOnce(world, 4, 5);
}

class WireLeases : public ::testing::TestWithParam<bool> {};

TEST_P(WireLeases, MayRunOutInTheMiddleOfABatch) {
  const bool exactly_once = GetParam();
  WireWorld world({.ordering = true, .exactly_once = exactly_once});
  world.options.lanes = 1;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  const auto blocker = world.database.Connect();
  auto held = blocker->Begin();
  ASSERT_TRUE(held->Execute("LOCK TABLE rm.items").ok());
  world.Publish(Events(2, 5));
  ASSERT_TRUE(world.Await([&] { return group->status().counts.deliveries == 10; }));
  ASSERT_TRUE(world.Await([&] { return group->status().lanes.at(0).in_batch > 0; }));
  world.ExpireLeases();
  // The batch is still under way and its messages come again, the whole keys.
  ASSERT_TRUE(world.Await([&] { return group->status().counts.deliveries >= 20; }));
  ASSERT_TRUE(held->Commit().ok());
  ASSERT_TRUE(world.Await([&] { return group->DrainedFor(kQuiet); }));
  ExpectEachOnce(world, 2, 5);
  const GroupCounts counts = group->status().counts;
  EXPECT_GT(counts.duplicates, 0);
  if (exactly_once) {
    // The first deliveries' acks were refused by the server: seen, counted, and without harm.
    EXPECT_GT(counts.ack_failures, 0);
  } else {
    EXPECT_EQ(counts.ack_failures, 0);
  }
  EXPECT_GE(counts.acks, 10);
}
INSTANTIATE_TEST_SUITE_P(Delivery, WireLeases, ::testing::Values(false, true),
                         [](const auto& test) {
                           return test.param ? "ExactlyOnce" : "AtLeastOnce";
                         });

TEST(Wire, ExactlyOnceDeliveryAcksEachMessageOnceAndSaysSo) {
  WireWorld world({.ordering = true, .exactly_once = true});
  const auto group = world.NewGroup();
  world.Publish(Events(20, 10));
  ASSERT_TRUE(world.Await([&] { return group->status().counts.acks >= 200; }));
  ExpectEachOnce(world, 20, 10);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.acks == 200; }));
  EXPECT_TRUE(world.Await([&] { return group->status().counts.ack_failures == 0; }));
  EXPECT_TRUE(world.Await([&] { return group->status().counts.duplicates == 0; }));
}

TEST(Wire, WhatIsLostOnTheWayIsNotOvertakenByItsSuccessor) {
  WireWorld world;
  const auto merged = [&](const char* id, const char* field) {
    return world.Count(fmt::format("SELECT count({}) FROM rm.items WHERE id = '{}'", field, id));
  };
  world.Publish({{.id = "k", .version = 1, .payload = Merge("b", "first")}});
  ASSERT_TRUE(testing::TakeAndBreakOff(world.server.address(), kSubscription, "one"));
  // Or what comes next would go into that stream, too.
  ASSERT_TRUE(world.Await([&] {
    const auto open = world.server.faults().Streams();
    return std::none_of(open.begin(), open.end(),
                        [](const auto& stream) { return stream.client_id == "one"; });
  }));
  world.Publish({{.id = "k", .version = 2, .payload = Merge("a", "second")}, {.id = "other"}});
  const auto group = world.NewGroup("one");
  ASSERT_TRUE(world.Await([&] { return merged("other", "id") == 1; }));
  EXPECT_EQ(merged("k", "id"), 0) << "the second version became the first that was seen";
  world.ExpireLeases();
  ASSERT_TRUE(world.Await([&] { return merged("k", "a") == 1; }));
  EXPECT_EQ(merged("k", "b"), 1);
}

// The same for a stream that is opened anew: the server must not take it for the one that broke.
TEST(Wire, NoTwoStreamsHaveTheSameClientId) {
  WireWorld world;
  const auto group = world.NewGroup("one");
  const auto id = [&]() -> std::string {
    const auto streams = world.server.faults().Streams();
    return streams.empty() ? "" : streams.front().client_id;
  };
  ASSERT_TRUE(world.Await([&] { return !id().empty(); }));
  const std::string first = id();
  EXPECT_TRUE(first.starts_with("one-")) << first;
  world.server.faults().Set({.close_streams = 1});
  world.Publish({{.id = "k"}});
  ASSERT_TRUE(world.Await([&] { return id() != first; }));
  world.server.faults().Set({});
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 1; }));
}

// Without ordering keys, versions come in any order, twice, over streams that break.
TEST(Wire, NeedsNoOrderFromTheBus) {
  WireWorld world({.ordering = false});
  world.Publish(Events(8, 1, /*ordered=*/false));
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 8; }));
  world.server.faults().Set({.close_streams = 0.05, .duplicate = 0.2});
  const auto other = world.NewGroup("two");
  auto events = Events(8, 24, /*ordered=*/false, /*from_version=*/2);
  std::shuffle(events.begin(), events.end(), std::mt19937(7));
  for (size_t at = 0; at < events.size(); at += 16) {
    world.Publish({events.begin() + static_cast<int64_t>(at),
                   events.begin() + static_cast<int64_t>(std::min(at + 16, events.size()))});
  }
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT sum(n) FROM rm.counters") == 200; }));
  ExpectEachOnce(world, 8, 25);
  EXPECT_GT(group->status().counts.parked + other->status().counts.parked, 0);
}

// Whoever stops gives back what it has not begun, which brings back the keys' later messages too.
TEST(Wire, InstancesComeAndGoWhileEventsFlow) {
  WireWorld world;
  world.server.faults().Set({.drop_acks = 0.02, .close_streams = 0.02, .duplicate = 0.05});
  std::vector<std::unique_ptr<Group>> groups;
  for (int i = 0; i < 3; ++i) groups.push_back(world.NewGroup("i" + std::to_string(i)));
  constexpr int kVersions = 30;
  for (int version = 1; version <= kVersions; ++version) {
    world.Publish(Events(30, 1, true, version));
    if (version % 5 != 0) continue;
    auto& leaving = groups[static_cast<size_t>(version / 5) % groups.size()];
    leaving->Stop();
    leaving = world.NewGroup("v" + std::to_string(version));
  }
  world.server.faults().Set({});
  ASSERT_TRUE(world.Await([&] {
    world.clock.Advance(Millis(1'000));  // what a lost ack holds back comes again
    return world.Count("SELECT coalesce(sum(n), 0) FROM rm.counters") == 30 * kVersions;
  }));
  ExpectEachOnce(world, 30, kVersions);
}

}  // namespace
}  // namespace lockstep::runner
