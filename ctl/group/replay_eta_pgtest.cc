// What a replay foretells of its own end. It takes minutes, so it runs on demand, and belongs to a
// machine that does nothing else meanwhile:
//   LOCKSTEP_REPLAY_EVENTS=1000000 scripts/with-postgres build/dev/tests/runner_binary_pgtest
//     --gtest_also_run_disabled_tests --gtest_filter='*ForetellsItsEnd*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ctl/testing/offsets_ctl.h"

namespace lockstep::ctl {
namespace {

constexpr int kKeys = 20'000;
constexpr int kChunk = 1'000;

struct Told {
  double at = 0, left = -1;
  int64_t done = 0;
};

// The lines that `replay --json` writes to stderr.
std::vector<Told> Parse(const std::string& text) {
  std::vector<Told> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("done")) continue;
    lines.push_back({.at = json["elapsed_seconds"], .done = json["done"]});
    if (json["eta_seconds"].is_number()) lines.back().left = json["eta_seconds"];
  }
  return lines;
}

TEST_F(OffsetsCtl, DISABLED_AReplayOfAMillionForetellsItsEndWithinAQuarter) {
  const char* const wanted = std::getenv("LOCKSTEP_REPLAY_EVENTS");
  const int events = wanted == nullptr ? 1'000'000 : std::atoi(wanted);
  const std::string start = Now();
  const auto publisher = world_.transport->NewPublisher({});
  for (int first = 0; first < events; first += kChunk) {
    std::vector<pubsub::Message> messages;
    for (int i = first; i < std::min(first + kChunk, events); ++i) {
      const std::string id = fmt::format("k{}", i % kKeys);
      const int version = 1 + i / kKeys;
      messages.push_back(TestEvent{.id = id,
                                   .version = version,
                                   .payload = fmt::format(R"({{"id":"{}","a":"{}"}})", id, version),
                                   .event_id = Uuid(i)}
                             .Message());
    }
    PublishAndWait(*publisher, world_.topic, std::move(messages));
  }
  runner_ = world_.Runner();
  const auto applied = [&] {
    return world_.Count("SELECT count(*) FROM feed_state.inbox") == events;
  };
  ASSERT_TRUE(world_.Await(applied, std::chrono::minutes(30))) << runner_->Errors();
  world_.database.Run("UPDATE rm.items SET a = 'spoilt'");

  const auto replay = world_.Ctl("--json replay feed --reason test --yes --from " + start);
  ASSERT_EQ(replay.status, 0) << replay.err;
  EXPECT_EQ(Right(), std::min(kKeys, events));
  const auto told = Parse(replay.err);
  const auto moving = std::find_if(told.begin(), told.end(), [](auto& t) { return t.done > 0; });
  const auto end =
      std::find_if(told.begin(), told.end(), [&](auto& t) { return t.done >= events; });
  ASSERT_NE(end, told.end()) << replay.err;
  fmt::print("{} events in {:.0f} s\n", events, end->at - moving->at);
  for (auto line = moving; line < end; ++line) {
    const double since = line->at - moving->at, left = end->at - line->at;
    fmt::print("at {:3.0f} s, {:7} done: {:3.0f} s left foretold, {:3.0f} s in truth ({:+.0f}%)\n",
               since, line->done, line->left, left, 100 * (line->left - left) / left);
    // Lines come every two seconds, and the count with them.
    if (since < 10) continue;
    EXPECT_NEAR(line->left, left, left / 4 + 2);
  }
}

}  // namespace
}  // namespace lockstep::ctl
