#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>

#include "operations/reconcile.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"

namespace lockstep::operations {
namespace {

using runner::Uuid;
using std::chrono::hours;
using std::chrono::minutes;

// A group that has received one event just now, and a source as the test says.
class ReconcileTest : public ::testing::Test {
 protected:
  ReconcileTest() {
    {
      const auto group = world_.NewGroup();
      world_.Publish({{.id = "a", .version = 1}});
      EXPECT_TRUE(world_.AwaitDrained());
    }
    world_.database.Run("DELETE FROM feed_state.inbox");
    world_.database.Run("UPDATE feed_state.offsets SET publish_time = now()");
    world_.database.Run(
        "UPDATE feed_state.slots SET first_publish_time = now() - interval '1 day'");
    source_.since = now_ - hours(12);
    source_.as_of = now_ + minutes(1);
    source_.oldest = [this] { return oldest_; };
    source_.next = [this]() -> absl::StatusOr<std::vector<SourceEvent>> {
      if (pages_.empty()) return std::vector<SourceEvent>();
      std::vector<SourceEvent> page = std::move(pages_.front());
      pages_.pop_front();
      return page;
    };
    source_.kept = [](const auto&) { return std::vector<std::string>(); };
  }

  // Events published an hour ago, by their numbers.
  void AddPage(const std::vector<int>& numbers) {
    std::vector<SourceEvent> page;
    for (const int number : numbers) {
      page.push_back({.event_id = Uuid(number),
                      .aggregate_key = fmt::format("item/{}", number),
                      .version = 1,
                      .event_type = "ItemChanged",
                      .message_id = fmt::format("none-{}", number),
                      .state = "published",
                      .published = now_ - hours(1)});
    }
    pages_.push_back(std::move(page));
  }
  void Receive(const std::string& event_id) {
    world_.database.Run(fmt::format(
        "INSERT INTO feed_state.inbox (generation, event_id) SELECT generation, '{}' FROM "
        "feed_state.active_slots",
        event_id));
  }
  // An id as lockstep.new_event_id makes them.
  static std::string MadeAt(WallTime time, int number) {
    const auto millis = std::chrono::duration_cast<Millis>(time.time_since_epoch()).count();
    return fmt::format("{:08x}-{:04x}-7000-8000-{:012}", millis >> 16, millis & 0xffff, number);
  }
  Reconciliation Run() {
    const auto connection = world_.database.Connect();
    auto result = Reconcile(*connection, state::Schema("feed_state"), ConsumerGroup("feed"),
                            source_, options_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : Reconciliation();
  }

  runner::GroupWorld world_;
  const WallTime now_ = Clock::System().Now();
  WallTime oldest_ = now_ - hours(24);
  std::deque<std::vector<SourceEvent>> pages_;
  SourceLedger source_;
  ReconcileOptions options_;
};

// More than are listed, on several pages: all of them had their time to come.
TEST_F(ReconcileTest, WhatComesWhileTheGroupIsWaitedForIsNotMissing) {
  AddPage({1, 2, 3});
  AddPage({4, 5});
  options_.most_listed = 1;
  int waits = 0;
  options_.pass = [&] {
    ++waits;
    for (int number = 1; number <= 4; ++number) Receive(Uuid(number));
    return absl::OkStatus();
  };
  const Reconciliation result = Run();
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(result.counts.at("applied"), 4);
  EXPECT_EQ(result.counts.at("missing"), 1);
  ASSERT_EQ(result.missing.size(), 1u);
  EXPECT_EQ(result.missing[0].event_id, Uuid(5));
  EXPECT_EQ(result.unconfirmed, "");
}

TEST_F(ReconcileTest, NobodyIsWaitedForWhenNothingIsMissing) {
  AddPage({1});
  Receive(Uuid(1));
  options_.pass = [] { return Unavailable("it was waited for"); };
  EXPECT_TRUE(Run().clean());
}

TEST_F(ReconcileTest, SaysWhyWhatIsMissingMayBeLateOnly) {
  AddPage({1});
  options_.pass = [] { return FailedPrecondition("no runner works"); };
  const Reconciliation result = Run();
  EXPECT_EQ(result.counts.at("missing"), 1);
  EXPECT_EQ(result.unconfirmed, "no runner works");
}

// The source keeps an hour, and the group receives what was published before that.
TEST_F(ReconcileTest, WhatIsOlderThanTheOutboxKeepsIsNoOrphan) {
  oldest_ = now_ - hours(1);
  Receive(MadeAt(now_ - hours(2), 1));
  Receive(MadeAt(oldest_ + minutes(30), 2));
  const Reconciliation result = Run();
  EXPECT_EQ(result.counts.at("no_longer_kept"), 1);
  ASSERT_EQ(result.orphans.size(), 1u);
  EXPECT_EQ(result.orphans[0].first, MadeAt(oldest_ + minutes(30), 2));
}

// A file has what was published since then, and can't be asked for the rest.
TEST_F(ReconcileTest, WhatIsOlderThanAFileIsNoOrphan) {
  source_.kept = nullptr;
  source_.as_of = now_ + minutes(10);  // the last minute of it counts as in doubt
  Receive(MadeAt(source_.since - minutes(5), 1));
  Receive(MadeAt(source_.since + minutes(5), 2));
  const Reconciliation result = Run();
  EXPECT_EQ(result.counts.at("no_longer_kept"), 1);
  EXPECT_EQ(result.counts.at("orphans"), 1);
}

// The row is deleted between the first look and the question for it.
TEST_F(ReconcileTest, WhatIsCleanedAwayMeanwhileIsNoOrphan) {
  oldest_ = now_ - hours(6);
  Receive(MadeAt(now_ - hours(3), 1));
  Receive(MadeAt(now_ - minutes(30), 2));
  source_.kept = [this](const auto&) {
    oldest_ = now_ - hours(1);
    return std::vector<std::string>();
  };
  const Reconciliation result = Run();
  EXPECT_EQ(result.counts.at("no_longer_kept"), 1);
  EXPECT_EQ(result.counts.at("orphans"), 1);
}

}  // namespace
}  // namespace lockstep::operations
