// A generation that knows events again by their versions: what it forgets nothing of, and that it
// comes to the same as one with a row per event, whatever happens to both.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "runner/testing/snapshot_world.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BatchRules kEveryVersion{.on_gap = OnGap::kPark};

// `fork`: another event of that version.
SentMessage Of(int64_t version, const std::string& id = "one", int fork = 0) {
  const std::string value = fmt::format("{}.{}", version, fork);
  return {.event_id = fmt::format("{:08}-{:04}-4000-8000-{:012}",
                                  std::hash<std::string>()(id) % 90'000'000, fork, version),
          .tenant = "t",
          .id = id,
          .version = version,
          .type = "Made",
          .payload = fmt::format(R"({{"id":"{0}","a":"{1}","b":"{1}"}})", id, value)};
}
SentMessage Spoilt(int64_t version) {
  SentMessage message = Of(version);
  message.payload = "bad";
  return message;
}

constexpr char kHardRow[] = "SELECT a, version FROM r.hard";
constexpr char kSettledBy[] =
    "SELECT settled_version, right(last_event::text, 1) FROM lockstep_state.key_state";
constexpr char kLetterRows[] = "SELECT version, code, blocks FROM lockstep_state.dead_letters";
constexpr char kMendedAll[] =
    "UPDATE lockstep_state.dead_letters"
    " SET payload = '{\"id\":\"one\",\"a\":\"x\",\"b\":\"x\"}'";

TEST(ByVersions, KnowsWhatCameBeforeWithoutARowOfIt) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  EXPECT_THAT(world.Run({Of(1), Of(2)}), ElementsAre(Fate::kApplied, Fate::kApplied));
  EXPECT_THAT(world.Run({Of(1), Of(2), Of(3), Of(3)}),
              ElementsAre(Fate::kDuplicate, Fate::kDuplicate, Fate::kApplied, Fate::kDuplicate));
  EXPECT_THAT(world.Run({Of(3)}), ElementsAre(Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("3.0|3"));
  EXPECT_THAT(world.Rows(kSettledBy), ElementsAre("3|3"));
  EXPECT_THAT(world.Rows("SELECT count(*) FROM lockstep_state.inbox"), ElementsAre("0"));
}

TEST(ByVersions, KnowsWhatWaits) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  world.Run({Of(1), Of(3), Of(4)});
  EXPECT_THAT(world.Run({Of(3), Of(4), Of(1)}),
              ElementsAre(Fate::kDuplicate, Fate::kDuplicate, Fate::kDuplicate));
  EXPECT_THAT(world.Rows("SELECT parked FROM lockstep_state.key_state"), ElementsAre("2"));
  EXPECT_THAT(world.Run({Of(2), Of(3)}), ElementsAre(Fate::kApplied, Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kSettledBy), ElementsAre("4|4"));
  EXPECT_THAT(world.Rows("SELECT count(*) FROM lockstep_state.parked"), ElementsAre("0"));
}

TEST(ByVersions, KnowsWhatDied) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  world.Run({Of(1), Spoilt(2), Of(3)});
  EXPECT_THAT(world.Run({Spoilt(2), Of(3)}), ElementsAre(Fate::kDuplicate, Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kLetterRows), ElementsAre("2|EVENT.MAPPING_FAILED|t"));
  world.db.Run(kMendedAll);
  EXPECT_TRUE(world.Resolve(1, /*replay=*/true).ok());
  EXPECT_THAT(world.Rows(kSettledBy), ElementsAre("3|3"));
  EXPECT_THAT(world.Run({Spoilt(2), Of(3)}), ElementsAre(Fate::kDuplicate, Fate::kDuplicate));
}

TEST(ByVersions, KnowsWhatWasGivenUp) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  world.Run({Of(1), Spoilt(2)});
  EXPECT_TRUE(world.Resolve(1, /*replay=*/false).ok());
  EXPECT_THAT(world.Rows(kSettledBy), ElementsAre("2|2"));
  EXPECT_THAT(world.Run({Spoilt(2)}), ElementsAre(Fate::kDuplicate));
  world.Run({Of(5)});
  EXPECT_TRUE(world.SkipTo("item@t/one", 5).ok());
  EXPECT_THAT(world.Run({Of(3), Of(4), Of(5)}),
              ElementsAre(Fate::kDuplicate, Fate::kDuplicate, Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("5.0|5"));
}

TEST(ByVersions, SkippedPoisonIsKnownAgain) {
  SnapshotWorld world(/*merges=*/false, {.on_poison = OnPoison::kSkip, .on_gap = OnGap::kPark},
                      /*by_versions=*/true);
  world.Run({Of(1), Spoilt(2)});
  EXPECT_THAT(world.Run({Spoilt(2), Of(3)}), ElementsAre(Fate::kDuplicate, Fate::kApplied));
  EXPECT_THAT(world.Rows(kLetterRows), ElementsAre("2|EVENT.MAPPING_FAILED|f"));
}

TEST(ByVersions, TellsAForkWhereTheVersionsMeet) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  world.Run({Of(1), Of(2), Of(3)});
  // A source that was restored to version 1 writes on.
  EXPECT_THAT(world.Run({Of(2, "one", 7), Of(3, "one", 7)}),
              ElementsAre(Fate::kDuplicate, Fate::kDead));
  EXPECT_THAT(world.Run({Of(3, "one", 7)}), ElementsAre(Fate::kDuplicate)) << "it died before";
  EXPECT_THAT(world.Rows(kLetterRows), ElementsAre("3|EVENT.VERSION_CONFLICT|f"));
  EXPECT_THAT(world.Run({Of(4, "one", 7), Of(3)}), ElementsAre(Fate::kApplied, Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("4.7|4"));
  // Both in one batch: the first one counts.
  EXPECT_THAT(world.Run({Of(5), Of(5, "one", 7)}), ElementsAre(Fate::kApplied, Fate::kDead));
  EXPECT_THAT(world.Run({Of(5), Of(5, "one", 7)}), ElementsAre(Fate::kDuplicate, Fate::kDuplicate));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("5.0|5"));
}

// It says what the source says now, as a replay by ids would.
TEST(ByVersions, AReplayOverwritesItsVersionAndAForkToo) {
  SnapshotWorld world(/*merges=*/false, kEveryVersion, /*by_versions=*/true);
  world.Run({Of(1), Of(2)});
  world.db.Run("UPDATE r.hard SET a = 'spoilt'");
  world.Overwrite();
  EXPECT_THAT(world.Run({Of(1)}), ElementsAre(Fate::kSuperseded));
  EXPECT_THAT(world.Run({Of(2)}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("2.0|2"));
  EXPECT_THAT(world.Run({Of(2, "one", 7)}), ElementsAre(Fate::kApplied));
  EXPECT_THAT(world.Rows(kHardRow), ElementsAre("2.7|2"));
  world.StopOverwriting();
  EXPECT_THAT(world.Run({Of(2, "one", 7), Of(2)}), ElementsAre(Fate::kDuplicate, Fate::kDead))
      << "a fork is told again";
}

TEST(ByVersions, WantsEveryVersionFollowedAndNothingThatNeedsEachEvent) {
  const auto projector = projections::LoadText(
      "group: g\nsubscription: s\nprojections:\n"
      "  - {name: n, table: r.n, key: {id: id}, events: {Made: {increment: {n: {value: 1}}}}}\n",
      "", projections::TestGroup::DefaultOptions());
  ASSERT_TRUE(projector.ok()) << projector.status();
  EXPECT_THAT(std::string(CheckByVersions("g", OnGap::kDeclared, *projector->projector).message()),
              HasSubstr("set on_gap: park, or set inbox: event"));
  EXPECT_THAT(std::string(CheckByVersions("g", OnGap::kPark, *projector->projector).message()),
              HasSubstr("r.n counts each event once"));
}

// The same deliveries to a world by ids and one by versions, with all that operators do between.
class BothWays {
 public:
  explicit BothWays(uint64_t seed) : random_(seed) {
    for (int i = 0; i < kStreams; ++i) streams_.push_back(Make(fmt::format("s{}", i)));
  }

  void Play() {
    for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
      const std::vector<SentMessage> batch = Batch();
      const ReleaseLimits limits{.max_events = Chance(20) ? 0 : 500};
      for (SnapshotWorld* const world : worlds_) world->Run(batch, limits);
      if (Chance(30)) Resolve();
      if (Chance(20)) Skip();
      if (Chance(3)) Forward();
      if (Chance(5)) Replay();
    }
    Compare();
  }

 private:
  static constexpr int kStreams = 60;
  static constexpr int kRounds = 60;

  struct Stream {
    std::string id;
    std::vector<SentMessage> deliveries;
    size_t next = 0;
    std::set<int64_t> given_up;  // what a version is that nobody waits for: it does not come
  };

  int Pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  bool Chance(int percent) { return Pick(100) < percent; }

  // A source's versions, with deletes and what follows them, some spoilt; at times it is restored
  // and tells another story from there.
  Stream Make(const std::string& id) {
    Stream stream{.id = id};
    std::vector<SentMessage> published;
    const int versions = 4 + Pick(12);
    for (int64_t version = 1; version <= versions; ++version) {
      SentMessage sent = Of(version, id);
      if (Chance(15)) sent.type = "Gone";
      if (sent.type != "Gone" && Chance(6)) sent.payload = "bad";
      published.push_back(sent);
      if (!sent.payload.starts_with('{') || !Chance(8)) continue;
      SentMessage other = Of(version, id, 7);
      other.type = sent.type;
      published.push_back(other);
    }
    std::erase_if(published,
                  [&](const SentMessage& sent) { return sent.version > 1 && Chance(3); });
    for (int i = 0; i < static_cast<int>(published.size()); ++i) {
      stream.deliveries.push_back(published[static_cast<size_t>(i)]);
      if (Chance(15)) i -= Pick(i + 2);
    }
    return stream;
  }

  std::vector<SentMessage> Batch() {
    std::vector<SentMessage> batch;
    for (Stream& stream : streams_) {
      for (int n = Pick(4); n > 0 && stream.next < stream.deliveries.size(); --n) {
        const SentMessage& sent = stream.deliveries[stream.next++];
        if (!stream.given_up.contains(sent.version)) batch.push_back(sent);
      }
    }
    return batch;
  }

  // Replayed, mended or not, or discarded.
  void Resolve() {
    const auto open = worlds_[0]->Rows(
        "SELECT event_id FROM lockstep_state.dead_letters WHERE state = 'dead' ORDER BY event_id");
    if (open.empty()) return;
    const std::string id = open[static_cast<size_t>(Pick(static_cast<int>(open.size())))];
    const bool replay = Chance(50);
    const bool mended = replay && Chance(80);
    bool done[2];
    for (int i = 0; i < 2; ++i) {
      SnapshotWorld& world = *worlds_[i];
      if (mended) {
        world.db.Run(fmt::format(
            "UPDATE lockstep_state.dead_letters SET payload = convert_to('{{\"id\":\"' || "
            "split_part(aggregate_key, '/', 2) || '\",\"a\":\"mended\",\"b\":\"x\"}}', 'UTF8') "
            "WHERE event_id = '{}'",
            id));
      }
      const auto letter = world.Rows(fmt::format(
          "SELECT id FROM lockstep_state.dead_letters WHERE event_id = '{}' AND state = 'dead'",
          id));
      ASSERT_EQ(letter.size(), 1U) << id << " in world " << i;
      done[i] = world.Resolve(std::stoll(letter[0]), replay).ok();
    }
    EXPECT_EQ(done[0], done[1]) << id;
  }

  void Skip() {
    const auto waiting = worlds_[0]->Rows(
        "SELECT k.aggregate_key, min(p.version), k.settled_version FROM lockstep_state.key_state k"
        " JOIN lockstep_state.parked p USING (aggregate_key) WHERE k.blocked_version IS NULL"
        " GROUP BY 1, 3 ORDER BY 1");
    if (waiting.empty()) return;
    const std::string& row = waiting[static_cast<size_t>(Pick(static_cast<int>(waiting.size())))];
    const std::string key = row.substr(0, row.find('|'));
    const int64_t to = std::stoll(row.substr(row.find('|') + 1));
    const int64_t settled = std::stoll(row.substr(row.rfind('|') + 1));
    const bool skipped = by_ids_.SkipTo(key, to).ok();
    EXPECT_EQ(by_versions_.SkipTo(key, to).ok(), skipped) << key << " " << to;
    if (!skipped) return;
    GiveUp(key.substr(key.find('/') + 1), settled + 1, to);
  }

  // A reset forward: of some streams a few are left out.
  void Forward() {
    for (SnapshotWorld* const world : worlds_) world->SkipGaps();
    for (Stream& stream : streams_) {
      const auto row = worlds_[0]->Rows(fmt::format(
          "SELECT settled_version FROM lockstep_state.key_state WHERE aggregate_key = 'item@t/{}'",
          stream.id));
      const int64_t first = row.empty() ? 1 : std::stoll(row[0]) + 1;
      for (size_t i = stream.next; i < stream.deliveries.size(); ++i) {
        if (stream.deliveries[i].version > first && Chance(30)) {
          GiveUp(stream.id, first, stream.deliveries[i].version);
          break;
        }
      }
    }
  }

  void GiveUp(const std::string& id, int64_t from, int64_t before) {
    for (Stream& stream : streams_) {
      if (stream.id != id) continue;
      for (int64_t version = from; version < before; ++version) stream.given_up.insert(version);
    }
  }

  // Without emptying, from the beginning to where each stands.
  void Replay() {
    std::vector<SentMessage> again;
    for (const Stream& stream : streams_) {
      for (size_t i = 0; i < stream.next; ++i) {
        if (!stream.given_up.contains(stream.deliveries[i].version)) {
          again.push_back(stream.deliveries[i]);
        }
      }
    }
    for (SnapshotWorld* const world : worlds_) {
      world->Overwrite();
      world->Run(again);
      world->StopOverwriting();
    }
  }

  void Compare() {
    for (const char* const sql :
         {"SELECT * FROM r.hard ORDER BY id",
          "SELECT id, a, b, version, deleted_at IS NULL FROM r.soft ORDER BY id",
          "SELECT aggregate_key, settled_version, blocked_version, parked, open"
          " FROM lockstep_state.key_state ORDER BY 1",
          "SELECT aggregate_key, version, event_id FROM lockstep_state.parked ORDER BY 1, 2, 3",
          "SELECT event_id, state, blocks, code FROM lockstep_state.dead_letters ORDER BY 1, 2"}) {
      EXPECT_EQ(worlds_[1]->Rows(sql), worlds_[0]->Rows(sql)) << sql;
    }
    EXPECT_THAT(worlds_[1]->Rows("SELECT count(*) FROM lockstep_state.inbox"), ElementsAre("0"));
  }

  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  SnapshotWorld by_ids_{/*merges=*/false, kEveryVersion};
  SnapshotWorld by_versions_{/*merges=*/false, kEveryVersion, /*by_versions=*/true};
  SnapshotWorld* const worlds_[2] = {&by_ids_, &by_versions_};
};

class ByVersionsStreams : public ::testing::TestWithParam<int> {};

TEST_P(ByVersionsStreams, ComeToWhatTheyComeToByIds) {
  const char* const given = std::getenv("LOCKSTEP_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                         : 20'261'119 + static_cast<uint64_t>(GetParam());
  SCOPED_TRACE(
      fmt::format("LOCKSTEP_SEED={} runner_snapshot_pgtest --gtest_filter='*ByIds/0'", seed));
  BothWays(seed).Play();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ByVersionsStreams, ::testing::Range(0, 6));

}  // namespace
}  // namespace lockstep::runner
