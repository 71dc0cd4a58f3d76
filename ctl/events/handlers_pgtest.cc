// Groups with handlers, with the programs as their users run them: kills, dead letters, pauses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runner/testing/binary_world.h"
#include "tests/support/http_test_server.h"

namespace lockstep::ctl {

using namespace runner;  // fixtures of the runner as a process
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HttpTestServer;

std::string EventOf(const HttpTestServer::Seen& seen) {
  return seen.headers.at("lockstep-aggregate-id") + "/" + seen.headers.at("lockstep-version");
}

class HandlersCtl : public ::testing::Test {
 protected:
  HandlersCtl()
      : server_([this](const HttpTestServer::Seen& seen) {
          return answer_ ? answer_(seen) : HttpTestServer::Ok();
        }) {
    world_.projection = fmt::format(
        "group: feed\nsubscription: items.feed\n"
        "projections:\n  - {{name: items, table: rm.items, key: id, version: version, events: "
        "{{ItemChanged: {{replace: [a]}}}}}}\n"
        "handlers:\n  - {{name: hook, call: '{}', events: [ItemChanged], allow_private: true}}\n",
        server_.url("/hook"));
    world_.group_settings = "    ack_deadline: 10s\n";  // what a killed one had comes soon
  }
  std::vector<std::string> Called() {
    std::vector<std::string> called;
    for (const auto& seen : server_.seen()) called.push_back(EventOf(seen));
    return called;
  }
  bool AwaitVersion(const std::string& id, int64_t version) {
    return world_.Await([&] {
      return world_.Count("SELECT coalesce(max(version), 0) FROM rm.items WHERE id = '" + id +
                          "'") >= version;
    });
  }

  std::function<std::string(const HttpTestServer::Seen&)> answer_;  // set before the runner starts
  BinaryWorld world_;
  HttpTestServer server_;
};

// Right there: the handler has said yes, and nothing has committed.
TEST_F(HandlersCtl, AKillBetweenTheAnswerAndTheCommitRepeatsTheCallAndNothingElse) {
  std::atomic<int> pid = 0;
  answer_ = [&](const HttpTestServer::Seen& seen) {
    if (EventOf(seen) == "k/2" && pid != 0) kill(pid.exchange(0), SIGKILL);
    return HttpTestServer::Ok();
  };
  auto runner = world_.Runner();
  pid = runner->pid();
  for (int version = 1; version <= 3; ++version) world_.Publish("k", version);
  ASSERT_TRUE(world_.Await([&] { return pid == 0; }));
  runner->Wait();
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE version >= 2"), 0);
  runner = world_.Runner();
  ASSERT_TRUE(AwaitVersion("k", 3)) << runner->Errors();
  std::map<std::string, std::vector<std::string>> keys;
  for (const auto& seen : server_.seen()) {
    keys[EventOf(seen)].push_back(seen.headers.at("idempotency-key"));
  }
  ASSERT_GE(keys["k/2"].size(), 2u);
  EXPECT_EQ(keys["k/2"].front(), keys["k/2"].back());
  EXPECT_EQ(keys["k/3"].size(), 1u);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.inbox"), 3);
}

TEST_F(HandlersCtl, UnderKillsNothingIsLostAndNothingIsOutOfOrder) {
  constexpr int kKeys = 8, kVersions = 40;
  answer_ = [](const HttpTestServer::Seen&) {
    std::this_thread::sleep_for(Millis(2));
    return HttpTestServer::Ok();
  };
  auto runner = world_.Runner();
  std::thread load([&] {
    for (int version = 1; version <= kVersions; ++version) {
      for (int key = 0; key < kKeys; ++key) world_.Publish(fmt::format("k{}", key), version);
    }
  });
  int kills = 0;
  for (; kills < 2; ++kills) {
    const size_t before = server_.seen().size();
    world_.Await([&] { return server_.seen().size() > before + 15; });
    kill(runner->pid(), SIGKILL);
    runner->Wait();
    runner = world_.Runner();
  }
  load.join();
  for (int key = 0; key < kKeys; ++key) {
    ASSERT_TRUE(AwaitVersion(fmt::format("k{}", key), kVersions)) << runner->Errors();
  }
  std::map<std::string, int64_t> last;
  std::map<std::string, int> calls;
  for (const auto& seen : server_.seen()) {
    const int64_t version = std::stoll(seen.headers.at("lockstep-version"));
    int64_t& newest = last[seen.headers.at("lockstep-aggregate-id")];
    EXPECT_LE(version, newest + 1) << EventOf(seen) << " came before its predecessor";
    newest = std::max(newest, version);
    ++calls[EventOf(seen)];
  }
  EXPECT_EQ(calls.size(), static_cast<size_t>(kKeys * kVersions));
  // What was accepted in a transaction that a kill ended comes again, once for each kill.
  for (const auto& [event, times] : calls) EXPECT_LE(times, kills + 1) << event;
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
}

TEST_F(HandlersCtl, ADeadLetterThatIsReplayedIsGivenToTheHandlerThenWhatWaited) {
  std::atomic<int> status = 400;
  answer_ = [&](const HttpTestServer::Seen& seen) {
    return EventOf(seen) == "k/2" && status != 200 ? HttpTestServer::Status(status)
                                                   : HttpTestServer::Ok();
  };
  const auto runner = world_.Runner();
  for (int version = 1; version <= 4; ++version) world_.Publish("k", version);
  ASSERT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM feed_state.parked") == 2;
  })) << runner->Errors();
  EXPECT_THAT(Called(), ElementsAre("k/1", "k/2"));
  EXPECT_THAT(world_.Ctl("dead-letters list").out, HasSubstr("HANDLER.REFUSED"));

  const auto refused = world_.Ctl("--yes dead-letters replay --key item/k");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.out + refused.err, HasSubstr("can still not be applied"));
  status = 503;
  const auto out = world_.Ctl("--yes dead-letters replay --key item/k");
  EXPECT_NE(out.status, 0);
  EXPECT_THAT(out.out + out.err, HasSubstr("is as it was: handler hook: "));
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 1);

  status = 200;
  const auto replayed = world_.Ctl("--yes dead-letters replay --key item/k");
  EXPECT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 4);
  EXPECT_THAT(Called(), ElementsAre("k/1", "k/2", "k/2", "k/2", "k/2", "k/3", "k/4"));
}

TEST_F(HandlersCtl, AGroupIsPausedAndResumed) {
  const auto runner = world_.Runner();
  world_.Publish("k", 1);
  ASSERT_TRUE(AwaitVersion("k", 1)) << runner->Errors();
  const auto paused = world_.Ctl("group pause feed --reason 'the shop moves' --json");
  ASSERT_EQ(paused.status, 0) << paused.err;
  EXPECT_EQ(json::parse(paused.out),
            json({{"group", "feed"}, {"paused", true}, {"changed", true}}));
  world_.Publish("k", 2);
  ASSERT_TRUE(world_.AwaitLog(*runner, "the group is paused"));
  EXPECT_THAT(world_.Ctl("lag --json").out, HasSubstr("\"state\": \"paused\""));
  EXPECT_THAT(world_.Ctl("group pause feed").out, HasSubstr("is already paused"));
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 1);
  EXPECT_THAT(Called(), ElementsAre("k/1"));
  EXPECT_EQ(world_.Ctl("group resume feed --reason 'it has moved'").status, 0);
  ASSERT_TRUE(AwaitVersion("k", 2)) << runner->Errors();
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action LIKE 'group.%' AND "
                         "reason LIKE '%mov%'"),
            2);
  EXPECT_NE(world_.Ctl("group pause nobody").status, 0);
}

TEST_F(HandlersCtl, AFunctionThatIsMissingIsASentenceOfTheCheck) {
  world_.projection += "  - {name: log, call: rm.on_item, events: [ItemChanged]}\n";
  const auto missing = world_.Ctl(fmt::format("projection check '{}/feed.yaml' --database '{}'",
                                              world_.folder, world_.database.url()));
  EXPECT_NE(missing.status, 0);
  EXPECT_THAT(missing.out + missing.err, HasSubstr("function rm.on_item does not exist"));
  world_.database.Run("CREATE FUNCTION rm.on_item(jsonb) RETURNS void LANGUAGE sql AS ''");
  const auto there = world_.Ctl(fmt::format("projection check '{}/feed.yaml' --database '{}'",
                                            world_.folder, world_.database.url()));
  EXPECT_EQ(there.status, 0) << there.out << there.err;
}

}  // namespace
}  // namespace lockstep::ctl
