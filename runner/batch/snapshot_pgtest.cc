// Snapshots in a batch: what they do to what waits, is dead, or comes late.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

#include "platform/status.h"
#include "runner/testing/snapshot_world.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SentMessage Message(int kind, int64_t version, const std::string& type, const std::string& fields) {
  return {.event_id = fmt::format("00000000-{:04}-4000-8000-{:012}", kind, version),
          .tenant = "t",
          .id = "one",
          .version = version,
          .type = type,
          .payload = fmt::format(R"({{"id":"one"{}}})", fields)};
}
SentMessage Made(int64_t version, const std::string& a) {
  return Message(1, version, "Made", fmt::format(R"(,"a":"{0}","b":"{0}")", a));
}
SentMessage Changed(int64_t version, const std::string& a) {
  return Message(1, version, "Changed", fmt::format(R"(,"a":"{}")", a));
}
SentMessage Bad(int64_t version) {
  SentMessage message = Made(version, "");
  message.payload = "bad";
  return message;
}
SentMessage Snapshot(int64_t version, const std::string& a, int backfill = 2) {
  SentMessage message =
      Message(backfill, version, "Made", fmt::format(R"(,"a":"{0}","b":"{0}")", a));
  message.snapshot = true;
  return message;
}

constexpr char kRow[] = "SELECT a, b, version FROM r.hard";
constexpr char kLetters[] =
    "SELECT version, code, state, blocks, coalesce(note, '') FROM lockstep_state.dead_letters "
    "ORDER BY version";
constexpr char kKey[] =
    "SELECT settled_version, blocked_version, snapshot_version, parked FROM "
    "lockstep_state.key_state";

TEST(SnapshotBatch, ASnapshotEndsTheWaitForADeadLetterUpToItsVersion) {
  SnapshotWorld world(/*merges=*/false);
  world.Run({Made(1, "one"), Bad(2), Made(3, "three"), Bad(4), Made(5, "five"), Bad(6),
             Made(7, "seven")});
  EXPECT_THAT(world.Rows(kRow), ElementsAre("one|one|1"));
  EXPECT_THAT(world.Run({Snapshot(4, "four")}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kRow), ElementsAre("five|five|5")) << "what waited goes on";
  EXPECT_EQ(world.overtaken, 2);
  EXPECT_THAT(
      world.Rows(kLetters),
      ElementsAre(
          "2|EVENT.MAPPING_FAILED|dead|f|nothing waits for it since a snapshot of version 4",
          "4|EVENT.MAPPING_FAILED|dead|f|nothing waits for it since a snapshot of version 4",
          "6|EVENT.MAPPING_FAILED|dead|t|"));
  EXPECT_THAT(world.Rows(kKey), ElementsAre("~|6|4|1"));
}

// Of a table that counts, or that the snapshot does not feed, an event has more to say than what
// stands now.
TEST(SnapshotBatch, ADeadLetterThatASnapshotPassedIsOpenAndCanBeReplayed) {
  for (const bool merges : {false, true}) {
    SnapshotWorld world(merges);
    SentMessage dead = Changed(2, "two");
    const std::string sound = std::exchange(dead.payload, "bad");
    world.Run({Made(1, "one"), dead});
    world.Run({Snapshot(3, "three")});
    EXPECT_THAT(
        world.Rows(kLetters),
        ElementsAre(
            "2|EVENT.MAPPING_FAILED|dead|f|nothing waits for it since a snapshot of version 3"));
    EXPECT_THAT(world.Run({Made(4, "four")}), ElementsAre(Fate::kApplied));
    const std::string others =
        merges ? "SELECT id, n FROM r.changes" : "SELECT a, version FROM r.changed";
    EXPECT_THAT(world.Rows(others), IsEmpty());
    world.db.Run(fmt::format(
        "UPDATE lockstep_state.dead_letters SET payload = convert_to('{}', 'UTF8')", sound));
    const absl::Status replayed = world.Resolve(1, /*replay=*/true);
    EXPECT_TRUE(replayed.ok()) << replayed;
    EXPECT_THAT(world.Rows(others), ElementsAre(merges ? "one|1" : "two|2"));
    EXPECT_THAT(world.Rows(kRow), ElementsAre("four|four|4"));
  }
}

// Its snapshot never comes; what led up to the delete needs none, and leaves no half of a row.
TEST(SnapshotBatch, ADeleteReleasesWhatWaitsForASnapshotThatCantCome) {
  for (const bool together : {false, true}) {
    SnapshotWorld world(/*merges=*/true, {.on_gap = OnGap::kPark, .baseline = Baseline::kSnapshot});
    world.db.Run("ALTER TABLE r.hard ALTER COLUMN b SET NOT NULL");
    const SentMessage gone = Message(1, 7, "Gone", "");
    if (together) {
      EXPECT_THAT(world.Run({Changed(5, "five"), Changed(6, "six"), gone}),
                  ElementsAre(Fate::kApplied, Fate::kApplied, Fate::kApplied));
    } else {
      EXPECT_THAT(world.Run({Changed(5, "five"), Changed(6, "six")}),
                  ElementsAre(Fate::kWaitsForPredecessor, Fate::kWaitsForPredecessor));
      EXPECT_THAT(world.Run({gone}), ElementsAre(Fate::kApplied));
    }
    EXPECT_THAT(world.Rows(kKey), ElementsAre("7|~|~|0"));
    EXPECT_THAT(world.Rows(kRow), IsEmpty());
    EXPECT_THAT(world.Rows("SELECT id, n FROM r.changes"), ElementsAre("one|2"));
    EXPECT_THAT(world.Rows(kLetters), IsEmpty());
    // A page that was read before the delete, and a row that is made anew.
    EXPECT_THAT(world.Run({Snapshot(4, "four")}), ElementsAre(Fate::kOvertaken));
    EXPECT_THAT(world.Run({Made(8, "eight")}), ElementsAre(Fate::kApplied));
    EXPECT_THAT(world.Rows(kRow), ElementsAre("eight|eight|8"));
  }
}

TEST(SnapshotBatch, ADeletePastAGapReleasesNothing) {
  SnapshotWorld world(/*merges=*/true, {.on_gap = OnGap::kPark, .baseline = Baseline::kSnapshot});
  world.Run({Changed(5, "five")});
  EXPECT_THAT(world.Run({Message(1, 7, "Gone", "")}), ElementsAre(Fate::kWaitsForPredecessor));
  EXPECT_THAT(world.Rows(kKey), ElementsAre("0|~|~|2"));
}

// As when a fault is looked for: what waits is none of this transaction's, and may have a gap.
TEST(SnapshotBatch, ADeleteWaitsUntilWhatLedUpToItIsAtHand) {
  for (const int64_t waits : {5, 6}) {
    SnapshotWorld world(/*merges=*/true, {.on_gap = OnGap::kPark, .baseline = Baseline::kSnapshot});
    world.Run({Changed(waits, "x")});
    EXPECT_THAT(world.Run({Message(1, 7, "Gone", "")}, {.max_events = 0}),
                ElementsAre(Fate::kWaitsForPredecessor));
    EXPECT_THAT(world.Rows(kKey), ElementsAre(waits == 6 ? "7|~|~|0" : "0|~|~|2"));
  }
}

// As after an outage of a handler: what the snapshot has released goes by itself, and first.
TEST(SnapshotBatch, NothingPassesWhatASnapshotHasReleasedAndIsNotAtHand) {
  for (const bool together : {false, true}) {
    SnapshotWorld world(/*merges=*/true, {.on_gap = OnGap::kPark, .baseline = Baseline::kSnapshot});
    world.Run({Changed(4, "four"), Changed(5, "five")});
    std::vector<Fate> fates;
    if (together) {
      fates = world.Run({Snapshot(6, "six"), Changed(7, "seven"), Changed(9, "nine")},
                        {.max_events = 0});
    } else {
      world.db.Run("UPDATE lockstep_state.key_state SET settled_version = 6, snapshot_version = 6");
      world.db.Run(
          "INSERT INTO r.hard (tenant, id, a, b, version) VALUES ('t', 'one', 'six', 'six', 6)");
      fates = world.Run({Snapshot(6, "six", 3), Changed(7, "seven"), Changed(9, "nine")},
                        {.max_events = 0});
    }
    ASSERT_EQ(fates.size(), 3U);
    EXPECT_TRUE(Waits(fates[1])) << "version 5 waits, and is before it";
    EXPECT_TRUE(Waits(fates[2]));
    EXPECT_THAT(world.Rows(kKey), ElementsAre("7|~|6|1"));
    EXPECT_THAT(world.Rows(kRow), ElementsAre("seven|six|7"));
  }
}

// Whoever added it: its version is none of the source's.
TEST(SnapshotBatch, AGhostSettlesNothing) {
  for (const bool merges : {false, true}) {
    for (const bool together : {false, true}) {
      SnapshotWorld world(merges);
      for (const char* const table : {"hard", "soft"}) {
        world.db.Run(
            fmt::format("INSERT INTO r.{} (tenant, id, a, b, version) VALUES"
                        " ('t', 'one', 'ghost', 'ghost', 99)",
                        table));
      }
      SentMessage ghost = Snapshot(99, "");
      ghost.overwrite = ghost.absent = true;
      if (together) {
        EXPECT_THAT(world.Run({Made(1, "one"), ghost}),
                    ElementsAre(Fate::kApplied, Fate::kApplied));
      } else {
        EXPECT_THAT(world.Run({ghost}), ElementsAre(Fate::kApplied));
        EXPECT_THAT(world.Rows(kRow), IsEmpty());
        EXPECT_THAT(world.Rows(kKey), IsEmpty());
        EXPECT_THAT(world.Run({Made(1, "one")}), ElementsAre(Fate::kApplied));
      }
      EXPECT_THAT(world.Run({Changed(2, "two")}), ElementsAre(Fate::kApplied));
      const std::string row = merges ? "two|one|2" : "two|~|2";
      EXPECT_THAT(world.Rows(kRow), ElementsAre(row));
      EXPECT_THAT(world.Rows("SELECT a, b, version FROM r.soft WHERE deleted_at IS NULL"),
                  ElementsAre(row));
      EXPECT_THAT(world.Run({ghost}), ElementsAre(Fate::kDuplicate));
    }
  }
}

TEST(SnapshotBatch, WhatTheTailBringsUpToASnapshotIsNeitherAForkNorNews) {
  for (const bool merges : {false, true}) {
    SnapshotWorld world(merges);
    EXPECT_THAT(world.Run({Snapshot(5, "five")}), ElementsAre(Fate::kApplied));
    EXPECT_THAT(world.Run({Made(4, "four"), Made(5, "other"), Made(6, "six")}),
                ElementsAre(Fate::kOvertaken, Fate::kOvertaken, Fate::kApplied));
    EXPECT_THAT(world.Run({Snapshot(6, "six", 3), Snapshot(5, "late", 3)}),
                ElementsAre(Fate::kOvertaken, Fate::kOvertaken));
    EXPECT_THAT(world.Rows(kRow), ElementsAre("six|six|6"));
    EXPECT_THAT(world.Rows(kLetters), IsEmpty());
    // A fork past the snapshot is one.
    SentMessage fork = Made(7, "seven");
    world.Run({fork});
    fork.event_id = "00000000-0009-4000-8000-000000000009";
    EXPECT_THAT(world.Run({fork}), ElementsAre(Fate::kDead));
    EXPECT_THAT(world.Rows("SELECT code FROM lockstep_state.dead_letters"),
                ElementsAre("EVENT.VERSION_CONFLICT"));
  }
}

TEST(SnapshotBatch, ASnapshotAndTheEventOfItsVersionComeInOneBatchInEitherOrder) {
  for (const bool merges : {false, true}) {
    for (const bool first : {false, true}) {
      SnapshotWorld world(merges);
      world.Run({Made(3, "three")});
      // Version 4 never came.
      std::vector<SentMessage> batch = {Snapshot(5, "five"),
                                        merges ? Changed(5, "five") : Made(5, "five")};
      if (!first) std::swap(batch[0], batch[1]);
      world.Run(batch);
      EXPECT_THAT(world.Rows(kRow), ElementsAre("five|five|5"));
      EXPECT_THAT(world.Rows("SELECT count(*) FROM lockstep_state.parked"), ElementsAre("0"));
      EXPECT_THAT(world.Rows(kLetters), IsEmpty());
    }
  }
}

// Where a backfill brings what was before, a part that comes first waits for the whole.
TEST(SnapshotBatch, AMergeWaitsForItsSnapshotWhereTheBaselineIsOne) {
  SnapshotWorld world(/*merges=*/true, {.baseline = Baseline::kSnapshot});
  EXPECT_THAT(world.Run({Changed(6, "six")}), ElementsAre(Fate::kWaitsForPredecessor));
  EXPECT_THAT(world.Rows(kKey), ElementsAre("0|~|~|1"));
  EXPECT_THAT(world.Run({Snapshot(5, "five")}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kRow), ElementsAre("six|five|6"));
  EXPECT_THAT(world.Rows(kKey), ElementsAre("6|~|5|0"));
  EXPECT_THAT(world.Run({Changed(7, "seven"), Changed(8, "eight")}),
              ElementsAre(Fate::kApplied, Fate::kApplied));
  SnapshotWorld lax(/*merges=*/true);
  EXPECT_THAT(lax.Run({Changed(6, "six")}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(lax.Rows(kRow), ElementsAre("six|~|6")) << "the first version seen is the beginning";
}

TEST(SnapshotBatch, ARefusedSnapshotBlocksAndSettlesNothing) {
  SnapshotWorld world(/*merges=*/true);
  world.Run({Made(1, "one")});
  SentMessage refused = Snapshot(5, "five");
  refused.type = "Changed";
  EXPECT_THAT(world.Run({refused, Changed(2, "two"), Changed(4, "four")}),
              ElementsAre(Fate::kDead, Fate::kApplied, Fate::kWaitsForPredecessor));
  EXPECT_THAT(world.Rows(kLetters), ElementsAre("5|EVENT.SNAPSHOT_REFUSED|dead|f|"));
  // Nor does giving it up.
  EXPECT_TRUE(world.Resolve(1, /*replay=*/false).ok());
  EXPECT_THAT(world.Rows(kKey), ElementsAre("2|~|~|1"));
  EXPECT_THAT(world.Run({Changed(3, "three")}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kRow), ElementsAre("four|one|4"));
}

// Two sessions at once, where versions are not followed: `meanwhile` looks for the aggregate's row
// before the batch of a snapshot of version 5 has made it, and meets that batch in a table.
void RunBesideASnapshot(SnapshotWorld& world, const std::function<void()>& meanwhile) {
  const auto other = world.db.Connect();
  auto snapshot = other->Begin();
  ASSERT_TRUE(snapshot.ok());
  for (const char* const sql :
       {"INSERT INTO lockstep_state.key_state (generation, aggregate_key, snapshot_version) "
        "SELECT generation, 'item@t/one', 5 FROM lockstep_state.slots",
        "INSERT INTO lockstep_state.row_versions (consumer_group, generation, projection, row_key,"
        " version, first_version) SELECT 'g', generation, 'hard', '(t,one)', 5, 5 "
        "FROM lockstep_state.slots",
        "INSERT INTO r.hard (tenant, id, a, b, version) VALUES ('t', 'one', 'five', 'five', 5)",
        "INSERT INTO r.soft (tenant, id, a, b, version) VALUES ('t', 'one', 'five', 'five', 5)"}) {
    ASSERT_TRUE(snapshot->Execute(sql).ok()) << sql;
  }
  std::thread event(meanwhile);
  while (world.db.QueryInt("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                           "AND datname = current_database()") == 0) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(snapshot->Commit().ok());
  event.join();
}

TEST(SnapshotBatch, AnEventThatASnapshotComesBeforeInAnotherSessionIsNoFork) {
  SnapshotWorld world(/*merges=*/false);
  std::vector<Fate> fates;
  RunBesideASnapshot(world, [&] { fates = world.Run({Made(5, "other")}); });
  EXPECT_THAT(fates, ElementsAre(Fate::kOvertaken));
  EXPECT_THAT(world.Rows(kLetters), IsEmpty());
  EXPECT_THAT(world.Rows(kRow), ElementsAre("five|five|5"));
}

TEST(SnapshotBatch, NorIsADeadLetterThatIsReplayedMeanwhile) {
  SnapshotWorld world(/*merges=*/false, {.on_poison = OnPoison::kSkip});
  world.Run({Bad(5)});
  EXPECT_THAT(world.Rows(kKey), IsEmpty()) << "nothing that could be locked";
  world.db.Run(
      fmt::format("UPDATE lockstep_state.dead_letters SET payload = convert_to('{}', 'UTF8')",
                  Made(5, "other").payload));
  absl::Status replayed;
  RunBesideASnapshot(world, [&] { replayed = world.Resolve(1, /*replay=*/true); });
  EXPECT_TRUE(replayed.ok()) << replayed;
  EXPECT_THAT(world.Rows("SELECT state, code FROM lockstep_state.dead_letters"),
              ElementsAre("replayed|EVENT.MAPPING_FAILED"));
  EXPECT_THAT(world.Rows(kRow), ElementsAre("five|five|5"));
}

}  // namespace
}  // namespace lockstep::runner
