// HTTP handlers on a real server: order, refusals, outages, what is remembered, time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "offsets/reset.h"
#include "platform/status.h"
#include "runner/testing/handler_world.h"

namespace lockstep::runner {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HttpTestServer;
using ::testing::Pair;

constexpr char kHook[] =
    "  - {name: hook, call: %URL%, events: [Made], allow_private: true, timeout: 5s}\n";

std::string Status(int status, const std::string& headers = "", const std::string& body = "") {
  return HttpTestServer::Status(status, headers, body);
}

TEST(HttpHandler, GetsEveryEventOnceInTheOrderOfItsAggregate) {
  HandlerWorld world(kHook);
  const auto group = world.NewGroup();
  for (int i = 0; i < 10; ++i) world.Make(fmt::format("k{}", i), 1, 20);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.CallsByEvent().size(), 200u);
  EXPECT_THAT(world.CallsByEvent(), Each(Pair(::testing::_, 1)));
  EXPECT_TRUE(world.InOrder());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing WHERE version = 20"), 10);
  const auto seen = world.server.seen().front();
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/hook");
  EXPECT_EQ(seen.headers.at("content-type"), "application/json");
  EXPECT_EQ(seen.headers.at("lockstep-replay"), "false");
  EXPECT_EQ(seen.headers.at("lockstep-kind"), "event");
  EXPECT_EQ(seen.headers.at("idempotency-key").size(), 36u);
}

TEST(HttpHandler, HasNoMoreRequestsUnderWayThanItSays) {
  HandlerWorld world(
      "  - {name: hook, call: %URL%, events: [Made], allow_private: true, concurrency: 3}\n",
      [](const HandlerWorld::Seen&) {
        std::this_thread::sleep_for(Millis(5));
        return HttpTestServer::Ok();
      });
  world.options.lanes = 4;
  const auto group = world.NewGroup();
  for (int i = 0; i < 40; ++i) world.Make(fmt::format("k{}", i), 1, 2);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.server.most_at_once(), 3);
  EXPECT_TRUE(world.InOrder());
}

TEST(HttpHandler, SaysNoToOneEventWhichDiesAndLeavesNothingInTheTables) {
  HandlerWorld world(kHook, [](const HandlerWorld::Seen& seen) {
    return EventOf(seen) == "bad/1" ? Status(422, "", "no such account") : HttpTestServer::Ok();
  });
  const auto group = world.NewGroup();
  world.Make("bad", 1, 2);
  world.Make("good", 1, 2);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT string_agg(id || version, ',') FROM rm.thing"), "good2");
  EXPECT_EQ(world.Value("SELECT code FROM feed_state.dead_letters"), "HANDLER.REFUSED");
  EXPECT_THAT(world.Value("SELECT reason FROM feed_state.dead_letters"),
              AllOf(HasSubstr("handler hook: "), HasSubstr("422"), HasSubstr("no such account")));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
  const auto calls = world.CallsByEvent();
  EXPECT_EQ(calls.at("bad/1"), 1);
  EXPECT_EQ(calls.at("good/1"), 1);  // though the transaction had to be run again
  EXPECT_EQ(calls.at("good/2"), 1);
  EXPECT_FALSE(calls.contains("bad/2"));
}

TEST(HttpHandler, AnOutageBlamesNobodyAndLosesNothing) {
  std::atomic<bool> out = true;
  std::atomic<int> refused = 0;
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen&) {
    if (!out) return HttpTestServer::Ok();
    ++refused;
    return Status(503);
  });
  world.options.max_attempts = 1;
  world.options.transient_tries = 1;
  const auto group = world.NewGroup();
  for (int i = 0; i < 5; ++i) world.Make(fmt::format("k{}", i), 1, 3);
  ASSERT_TRUE(world.Await([&] { return refused > 20; }));
  const auto lanes = group->status().lanes;
  const bool told = std::any_of(lanes.begin(), lanes.end(), [](const LaneStatus& lane) {
    return lane.outage.find("handler hook: ") != std::string::npos;
  });
  EXPECT_TRUE(told);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 0);
  out = false;
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing WHERE version = 3"), 5);
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_TRUE(world.InOrder());
}

TEST(HttpHandler, WhatIsAcceptedCommitsWhileTheRestWaits) {
  std::atomic<bool> out = true;
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen& seen) {
    return out && EventOf(seen).starts_with("slow/") ? Status(500) : HttpTestServer::Ok();
  });
  world.options.lanes = 1;
  world.Make("slow", 1, 2);
  world.Make("good", 1, 3);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await(
      [&] { return world.Count("SELECT coalesce(max(version), 0) FROM rm.thing") == 3; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing WHERE id = 'slow'"), 0);
  out = false;
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing WHERE id = 'slow'"), 2);
  EXPECT_THAT(world.CallsByEvent(), ::testing::Contains(Pair("good/1", 1)));
  EXPECT_TRUE(world.InOrder());
}

TEST(HttpHandler, WhatStandsBehindAnEventThatWaitsForItsAnswerWaitsToo) {
  std::atomic<bool> out = true;
  HandlerWorld world(
      "  - {name: hook, call: %URL%, events: [Made], allow_private: true, on_gap: apply}\n"
      "  - {name: tell, call: rm.tell, events: [Told], on_gap: apply}\n",
      [&](const HandlerWorld::Seen& seen) {
        return out && EventOf(seen).starts_with("slow/") ? Status(500) : HttpTestServer::Ok();
      });
  world.database.Run(
      "CREATE FUNCTION rm.tell(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$ INSERT "
      "INTO rm.log (id, version) SELECT aggregate_id, version FROM unnest(events) $$");
  world.options.lanes = 1;
  world.Make("slow", 1, 1);
  pubsub::Message told = TestEvent{.id = "slow", .version = 2}.Message();
  told.attributes["event_type"] = "Told";
  told.data = R"({"id":"slow"})";
  PublishAndWait(*world.bus.NewPublisher({}), kTopic, {std::move(told)});
  world.Make("good", 1, 1);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await(
      [&] { return world.Count("SELECT count(*) FROM rm.thing WHERE id = 'good'") == 1; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log"), 0) << "version 2 went before version 1";
  out = false;
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log WHERE version = 2"), 1);
}

TEST(HttpHandler, AnEventThatFailsWhileOthersPassDiesInTheEnd) {
  HandlerWorld world(kHook, [](const HandlerWorld::Seen& seen) {
    return EventOf(seen) == "ill/1" ? Status(500) : HttpTestServer::Ok();
  });
  world.options.max_attempts = world.options.transient_tries = 2;
  world.options.lanes = 2;
  const auto group = world.NewGroup();
  world.Make("ill", 1, 1);
  for (int i = 0; i < 400 && world.DeadLetters() == 0; ++i) {
    world.Make(fmt::format("k{}", i), 1, 1);
    std::this_thread::sleep_for(Millis(20));
  }
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 1);
  EXPECT_THAT(world.Value("SELECT reason FROM feed_state.dead_letters"),
              HasSubstr("while it accepted others"));
  EXPECT_GE(world.CallsByEvent().at("ill/1"), 4);
}

TEST(HttpHandler, AnAddressThatIsWrongForAllIsAskedAgainBeforeEventsDie) {
  std::atomic<bool> wrong = true;
  std::atomic<int> asked = 0;
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen&) {
    ++asked;
    return wrong && asked < 3 ? Status(404) : HttpTestServer::Ok();
  });
  const auto group = world.NewGroup();
  world.Make("k", 1, 2);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing"), 2);
}

TEST(HttpHandler, ComesBackWhenTheHandlerSaysSo) {
  std::atomic<int> calls = 0;
  std::atomic<SteadyTime> first{}, second{};
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen&) {
    (calls == 0 ? first : second) = Clock::System().Steady();
    return ++calls == 1 ? Status(429, "Retry-After: 1\r\n") : HttpTestServer::Ok();
  });
  const auto group = world.NewGroup();
  world.Make("k", 1, 1);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_GE(second.load() - first.load(), Millis(1'000));
  EXPECT_EQ(world.DeadLetters(), 0);
}

// The time for calls is over again and again: what was answered commits, and is not called twice.
TEST(HttpHandler, ALongBatchIsCommittedInPieces) {
  HandlerWorld world(kHook, [](const HandlerWorld::Seen&) {
    std::this_thread::sleep_for(Millis(40));
    return HttpTestServer::Ok();
  });
  world.options.lanes = 1;
  world.Make("k", 1, 120);  // 4.8 s, one after the other
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] {
    return world.Count("SELECT coalesce(max(version), 0) FROM rm.thing WHERE version < 120") > 0;
  }));
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing"), 120);
  EXPECT_THAT(world.CallsByEvent(), Each(Pair(::testing::_, 1)));
  EXPECT_TRUE(world.InOrder());
}

TEST(HttpHandler, IsNotCalledForWhatTheTablesRefuseNorTwiceForTheOthers) {
  HandlerWorld world(kHook);
  world.database.Run("ALTER TABLE rm.thing ADD CHECK (a <> 'bad')");
  world.options.lanes = 1;
  world.Make("a", 1, 2);
  world.Make("b", 1, 2, "bad");
  world.Make("c", 1, 2);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_THAT(world.CallsByEvent(),
              ElementsAre(Pair("a/1", 1), Pair("a/2", 1), Pair("c/1", 1), Pair("c/2", 1)));
  EXPECT_EQ(world.DeadLetters(), 1);
}

// Between the answer and the COMMIT, in one process: the session is gone, the memory is not.
TEST(HttpHandler, ALostConnectionBeforeTheCommitDoesNotCallAgain) {
  std::atomic<bool> cut = false;
  HandlerWorld* the_world = nullptr;
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen& seen) {
    if (EventOf(seen) == "k/2" && !cut.exchange(true)) {
      const auto connection = the_world->database.Connect();
      connection
          ->Run(
              "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "
              "'lockstep-runner feed%' AND state LIKE 'idle in transaction%' "
              "AND datname = current_database()")
          .IgnoreError();
    }
    return HttpTestServer::Ok();
  });
  the_world = &world;
  const auto group = world.NewGroup();
  world.Make("k", 1, 3);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(cut);
  EXPECT_THAT(world.CallsByEvent(), ElementsAre(Pair("k/1", 1), Pair("k/2", 1), Pair("k/3", 1)));
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing"), 3);
}

TEST(HttpHandler, NothingOfAnOldEpochIsCalledAfterAReset) {
  std::latch called(1);
  std::atomic<bool> go = false;
  std::atomic<int> after = 0;
  std::atomic<bool> reset_done = false;
  HandlerWorld world(kHook, [&](const HandlerWorld::Seen& seen) {
    if (reset_done) ++after;
    if (EventOf(seen) == "k/1") {
      called.count_down();
      while (!go) std::this_thread::sleep_for(Millis(5));
    }
    return HttpTestServer::Ok();
  });
  world.options.ack_fence = Millis(100);
  const auto group = world.NewGroup();
  world.Make("k", 1, 5);
  called.wait();
  std::thread reset([&] {
    const auto connection = world.database.Connect();
    const auto done = offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                          .Run(*connection, {.seek = state::SeekTarget::To(Clock::System().Now()),
                                             .operator_name = "ada",
                                             .reason = "a test",
                                             .fence = Millis(200),
                                             .takeover = Millis(300),
                                             .lock_try = Millis(100)});
    EXPECT_TRUE(done.ok()) << done.status();
    reset_done = true;
  });
  // It waits for the transaction whose call is under way.
  ASSERT_TRUE(world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0;
  }));
  go = true;
  reset.join();
  world.Make("later", 1, 1);
  ASSERT_TRUE(world.Await([&] { return world.CallsByEvent().contains("later/1"); }));
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(after, 1) << "the later one alone";
}

// (Whoever is in the middle of a call has the time that a stop gives; who waits to be asked again
// has not.)
TEST(HttpHandler, AStopDoesNotWaitForAHandlerThatIsOut) {
  std::atomic<int> calls = 0;
  std::atomic<bool> out = true;
  HandlerWorld world("  - {name: hook, call: %URL%, events: [Made], allow_private: true}\n",
                     [&](const HandlerWorld::Seen& seen) {
                       ++calls;
                       const bool accepts =
                           !out || seen.headers.at("lockstep-aggregate-id") == "good";
                       return accepts ? HttpTestServer::Ok() : HttpTestServer::Status(503);
                     });
  world.drain = Millis(30'000);
  world.options.lanes = 1;
  world.Make("good", 1, 1);
  world.Make("k", 1, 1);
  auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return calls > 3; }));
  const SteadyTime began = Clock::System().Steady();
  group.reset();
  EXPECT_LT(Clock::System().Steady() - began, std::chrono::seconds(10));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 1) << "what was accepted is committed";
  out = false;
  group = world.NewGroup("two");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 2);
}

TEST(HttpHandler, AStopDoesNotWaitForAHandlerThatHangs) {
  std::latch called(1);
  std::atomic<bool> hang = true;
  HandlerWorld world(
      "  - {name: hook, call: %URL%, events: [Made], allow_private: true, timeout: 30s}\n",
      [&](const HandlerWorld::Seen&) -> std::string {
        if (!hang) return HttpTestServer::Ok();
        called.count_down();
        return HttpTestServer::kHang;
      });
  world.drain = Millis(200);
  auto group = world.NewGroup();
  world.Make("k", 1, 1);
  called.wait();
  const SteadyTime began = Clock::System().Steady();
  group.reset();
  EXPECT_LT(Clock::System().Steady() - began, std::chrono::seconds(5));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 0);
  hang = false;
  group = world.NewGroup("two");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 1);
}

}  // namespace
}  // namespace lockstep::runner
