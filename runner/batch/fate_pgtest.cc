// What the inbox says became of an event: the same as the batch, also where that was known late.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/snapshot_world.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;

SentMessage OfType(const std::string& type, int64_t version) {
  return {.event_id = fmt::format("00000000-0001-4000-8000-{:012}", version),
          .tenant = "t",
          .id = "one",
          .version = version,
          .type = type,
          .payload = fmt::format(R"({{"id":"one","a":"{0}","b":"{0}"}})", version)};
}
SentMessage MadeOf(int64_t version) { return OfType("Made", version); }
SentMessage SpoiltOf(int64_t version) {
  SentMessage message = MadeOf(version);
  message.payload = "bad";
  return message;
}
SentMessage SnapshotOf(int64_t version) {
  SentMessage message = MadeOf(version);
  message.event_id = fmt::format("00000000-0002-5000-8000-{:012}", version);
  message.snapshot = true;
  return message;
}

// Version by version.
constexpr char kFates[] =
    "SELECT right(event_id::text, 1), fate FROM lockstep_state.inbox WHERE event_id::text LIKE "
    "'00000000-0001%' ORDER BY event_id";

constexpr char kMend[] =
    "UPDATE lockstep_state.dead_letters SET payload = '{\"id\":\"one\",\"a\":\"x\",\"b\":\"x\"}'";

TEST(InboxFate, TellsAppliedSupersededIgnoredAndDeadApart) {
  for (const bool merges : {false, true}) {
    SnapshotWorld world(merges);
    world.Run({MadeOf(1), OfType("Seen", 2), MadeOf(4)});
    EXPECT_THAT(world.Run({MadeOf(3), SpoiltOf(5)}),
                ElementsAre(Fate::kSuperseded, Fate::kDeadAndBlocking));
    EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|i", "3|s", "4|a", "5|d"));
    EXPECT_THAT(world.Run({MadeOf(3), MadeOf(1)}), ElementsAre(Fate::kDuplicate, Fate::kDuplicate));
    EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|i", "3|s", "4|a", "5|d"));
  }
}

TEST(InboxFate, OfAParkedEventIsThatOfItsRelease) {
  SnapshotWorld world(/*merges=*/false, {.on_gap = OnGap::kPark});
  world.Run({MadeOf(1), MadeOf(3), OfType("Seen", 4), SpoiltOf(6), MadeOf(7)});
  world.Run({MadeOf(2)});
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|a", "3|a", "4|i", "6|d", "7|a"));
  world.Run({SnapshotOf(7)});
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|a", "3|a", "4|i", "6|d", "7|s"))
      << "a snapshot came before it";
}

TEST(InboxFate, OfADeadLetterIsThatOfItsReplay) {
  SnapshotWorld world(/*merges=*/false);
  world.Run({MadeOf(1), SpoiltOf(2), SpoiltOf(3), SpoiltOf(4)});
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|d", "3|d", "4|d"));
  EXPECT_TRUE(world.Resolve(1, /*replay=*/false).ok());
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|d", "3|d", "4|d")) << "it was given up";
  world.db.Run(kMend);
  EXPECT_TRUE(world.Resolve(2, /*replay=*/true).ok());
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|d", "3|a", "4|d"));
  world.Run({SnapshotOf(5)});
  EXPECT_TRUE(world.Resolve(3, /*replay=*/true).ok());
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|d", "3|a", "4|s"));
}

// What was counted or merged once is not undone when a replay passes it over.
TEST(InboxFate, AReplayMakesAnEventAppliedAndNeverLess) {
  SnapshotWorld world(/*merges=*/false);
  world.Run({MadeOf(1), MadeOf(2)});
  world.db.Run("UPDATE lockstep_state.inbox SET fate = 'i' WHERE event_id::text LIKE '%2'");
  world.Overwrite();
  EXPECT_THAT(world.Run({MadeOf(1)}), ElementsAre(Fate::kSuperseded));
  EXPECT_THAT(world.Run({MadeOf(2)}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|a"));
}

// Parked, and replayed in the batch that releases it: it is no fork of the source.
TEST(InboxFate, AnEventThatWaitsAndComesAgainIsAppliedOnce) {
  for (const bool merges : {false, true}) {
    SnapshotWorld world(merges, {.on_gap = OnGap::kPark});
    world.Run({MadeOf(1), OfType("Changed", 3), OfType("Changed", 4)});
    world.Overwrite();
    EXPECT_THAT(world.Run({MadeOf(1), MadeOf(2), OfType("Changed", 3), OfType("Changed", 3)}),
                ElementsAre(::testing::_, Fate::kApplied, Fate::kDuplicate, Fate::kDuplicate));
    EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|a", "3|a", "4|a"));
    EXPECT_THAT(world.Rows("SELECT a, version FROM r.hard"), ElementsAre("4|4"));
    EXPECT_THAT(world.Rows("SELECT count(*) FROM lockstep_state.dead_letters"), ElementsAre("0"));
    world.Run({MadeOf(5), MadeOf(5)});
    EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a", "2|a", "3|a", "4|a", "5|a"));
    EXPECT_THAT(world.Rows("SELECT count(*) FROM lockstep_state.dead_letters"), ElementsAre("0"));
    if (merges) {
      EXPECT_THAT(world.Rows("SELECT n FROM r.changes"), ElementsAre("2"));
    }
  }
}

// An event that the inbox has forgotten while it waited is not remembered again.
TEST(InboxFate, WhatIsForgottenStaysSo) {
  SnapshotWorld world(/*merges=*/false, {.on_gap = OnGap::kPark});
  world.Run({MadeOf(1), MadeOf(3)});
  world.db.Run("DELETE FROM lockstep_state.inbox WHERE event_id::text LIKE '%3'");
  world.Run({SnapshotOf(4)});
  EXPECT_THAT(world.Rows(kFates), ElementsAre("1|a"));
}

}  // namespace
}  // namespace lockstep::runner
