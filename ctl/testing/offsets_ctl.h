#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "platform/duration.h"
#include "runner/testing/binary_world.h"

namespace lockstep::ctl {

using namespace runner;  // fixtures of the runner as a process

inline constexpr char kReplacing[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      ItemChanged: {replace: {a: a}}
  - name: counters
    table: rm.counters
    key: id
    events:
      ItemChanged: {increment: {n: {value: 1}}}
)";

inline std::string Now() { return FormatTimestamp(Clock::System().Now()); }

inline int Times(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// A runner that has applied item a (versions 1 and 2) and b, and c, published at a later time; what
// an operator does to its offsets then.
class OffsetsCtl : public ::testing::Test {
 protected:
  explicit OffsetsCtl(const std::string& emulator = "") : world_(emulator) {
    world_.projection = kReplacing;
    world_.group_settings = "    ack_fence: 500ms\n    seek_takeover: 1s\n";
    world_.database.Run(
        "CREATE TABLE rm.counters (id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)");
  }
  void RunAndPublish() {
    runner_ = world_.Runner();
    before_ = Now();
    world_.Publish("a", 1);
    world_.Publish("a", 2);
    world_.Publish("b", 1);
    ASSERT_TRUE(AwaitRight(2)) << runner_->Errors();
    between_ = Now();
    world_.Publish("c", 1);
    ASSERT_TRUE(AwaitRight(3)) << runner_->Errors();
  }
  // Every item holds its version, as the events say.
  int64_t Right() { return world_.Count("SELECT count(*) FROM rm.items WHERE a = version::text"); }
  bool AwaitRight(int64_t items) {
    return world_.Await([&] { return Right() == items; });
  }
  bool AwaitSought(int64_t epoch) {
    return world_.Await([&] {
      return world_.Count(fmt::format("SELECT count(*) FROM feed_state.consumer_groups WHERE "
                                      "epoch = {} AND seek_state = 'done'",
                                      epoch)) == 1;
    });
  }
  int64_t Epoch() { return world_.Count("SELECT epoch FROM feed_state.consumer_groups"); }
  void ExpectEachCountedOnce() {
    EXPECT_EQ(world_.Count("SELECT n FROM rm.counters WHERE id = 'a'"), 2);
    EXPECT_EQ(world_.Count("SELECT sum(n) FROM rm.counters"), 4);
  }

  BinaryWorld world_;
  std::unique_ptr<testing::Process> runner_;
  std::string before_, between_;
};

}  // namespace lockstep::ctl
