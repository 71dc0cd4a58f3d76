#include "runner/options/group_options.h"

#include <gtest/gtest.h>

#include "platform/duration.h"

namespace lockstep::runner {
namespace {

using Kind = state::SeekTarget::Kind;

absl::StatusOr<state::SeekTarget> Parse(const std::string& start_from) {
  GroupOptions options;
  options.subscription = "projects/p/subscriptions/s";
  options.start_from = start_from;
  return options.ParseStartFrom();
}

TEST(StartFrom, UnderstandsEveryWord) {
  EXPECT_EQ(Parse("committed")->kind, Kind::kNone);
  EXPECT_EQ(Parse("latest")->kind, Kind::kLatest);
  EXPECT_EQ(Parse("earliest")->kind, Kind::kEarliest);
  EXPECT_EQ(Parse("checkpoint")->kind, Kind::kCheckpoint);
  EXPECT_EQ(Parse("2026-01-30T12:00:00Z")->time, *ParseTimestamp("2026-01-30T12:00:00Z"));
  EXPECT_EQ(Parse("snapshot:s1")->snapshot, "projects/p/snapshots/s1");
  EXPECT_EQ(Parse("snapshot:projects/q/snapshots/s1")->snapshot, "projects/q/snapshots/s1");
  EXPECT_FALSE(Parse("yesterday").ok());
  EXPECT_FALSE(Parse("snapshot:").ok());
}

TEST(StartFrom, IsCheckedBeforeTheStart) {
  GroupOptions options;
  options.name = "feed";
  options.subscription = "items.feed";
  for (const char* word : {"committed", "checkpoint", "latest"}) {
    options.start_from = word;
    EXPECT_TRUE(options.Validate().ok()) << word;
  }
  options.start_from = "yesterday";
  EXPECT_FALSE(options.Validate().ok());
  options.start_from = "latest";
  options.ack_fence = Millis(0);  // no ack would be in time
  EXPECT_FALSE(options.Validate().ok());
  options.ack_fence = Millis(100);
  options.seek_takeover = Millis(0);
  EXPECT_FALSE(options.Validate().ok());
}

}  // namespace
}  // namespace lockstep::runner
