// Snapshots among events, redelivered, parked and dead, against a model that knows only what the
// source did: whatever comes in whatever order, a replica's row is what the source had at some
// version, and that version is the highest that can be known. 10,000 streams; LOCKSTEP_SEED runs
// one other seed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "runner/testing/snapshot_world.h"

namespace lockstep::runner {
namespace {

using ::testing::UnorderedElementsAreArray;

constexpr int kCases = 20;
constexpr int kStreams = 500;

uint64_t FirstSeed() {
  const char* given = std::getenv("LOCKSTEP_SEED");
  return given == nullptr ? 20'261'118 : std::strtoull(given, nullptr, 10);
}

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int Pick(int below) { return static_cast<int>(bits_() % static_cast<uint64_t>(below)); }
  bool Chance(int percent) { return Pick(100) < percent; }

 private:
  std::mt19937_64 bits_;
};

struct Content {
  std::string a, b;
};

struct Ways {
  bool merges = false;       // a change is a part, and waits for its predecessor
  bool all_wait = false;     // so does every event
  bool by_versions = false;  // and events are known again by their versions
};

// One aggregate: what the source did, and what of it is delivered, in its order.
struct Stream {
  int number = 0;
  std::string tenant, id;
  std::vector<std::optional<Content>> states;  // by version; none = it does not exist
  std::vector<std::string> types;              // of the event that made each version
  std::set<int64_t> poison;
  std::vector<SentMessage> deliveries;
  size_t next = 0;

  // What came.
  std::set<int64_t> events;
  int64_t snapshot = 0;
  int64_t began = 0;    // the version before the first, where a delete told how the row stands
  int64_t refused = 0;  // snapshots

  int64_t last() const { return static_cast<int64_t>(states.size()) - 1; }
  int64_t blocked() const {
    const auto first = poison.upper_bound(snapshot);
    for (auto at = first; at != poison.end(); ++at) {
      if (events.contains(*at)) return *at;
    }
    return 0;
  }
  // Whether nothing says yet how the row stood before the events.
  bool unknown(const Ways& ways) const { return snapshot == 0 && known(ways) == 0; }
  // A delete says it, and what leads up to it without a gap can't leave half a row.
  void FindDelete() {
    int64_t next = events.empty() ? 0 : *events.begin();
    for (const int64_t event : events) {
      if (event != next++ || poison.contains(event)) return;
      if (types[static_cast<size_t>(event)] != "Gone") continue;
      began = *events.begin() - 1;
      return;
    }
  }
  // The highest version that what came can be brought to.
  int64_t known(const Ways& ways) const {
    int64_t version = std::max(snapshot, began);
    for (const int64_t event : events) {
      if (event <= version || poison.contains(event)) continue;
      if (blocked() > 0 && event > blocked()) break;
      const bool waits =
          ways.all_wait || (ways.merges && types[static_cast<size_t>(event)] == "Changed");
      if (event == version + 1 || !waits) version = event;
    }
    return version;
  }
};

class Streams {
 public:
  Streams(uint64_t seed, const Ways& ways) : random_(seed), ways_(ways) {
    for (int i = 0; i < kStreams; ++i) streams_.push_back(Make(i));
  }

  // The next batch: of any streams, each in its own order. Empty at the end.
  std::vector<SentMessage> Next() {
    std::vector<SentMessage> batch;
    std::set<Stream*> touched;
    const int size = 1 + random_.Pick(300);
    while (static_cast<int>(batch.size()) < size && !open_.empty()) {
      const size_t at = static_cast<size_t>(random_.Pick(static_cast<int>(open_.size())));
      Stream& stream = streams_[open_[at]];
      touched.insert(&stream);
      // Often more than one of a stream, as of a subscription that was idle.
      for (bool more = true; more && stream.next < stream.deliveries.size();) {
        batch.push_back(stream.deliveries[stream.next++]);
        Came(stream, batch.back());
        more = random_.Chance(50);
      }
      if (stream.next < stream.deliveries.size()) continue;
      open_[at] = open_.back();
      open_.pop_back();
    }
    for (Stream* const stream : touched) {
      if (ways_.all_wait && stream->unknown(ways_)) stream->FindDelete();
    }
    return batch;
  }

  bool Chance(int percent) { return random_.Chance(percent); }

  // What to send so that spoilt rows are the source's again. Content that was changed or taken away
  // is brought back, and a row that the source has no longer goes.
  std::vector<SentMessage> Spoil(SnapshotWorld& world) {
    std::vector<SentMessage> repairs;
    for (Stream& stream : streams_) {
      const int64_t version = stream.known(ways_);
      if (version == 0 || !random_.Chance(20)) continue;
      const std::string where =
          fmt::format("WHERE tenant = '{}' AND id = '{}'", stream.tenant, stream.id);
      bool there = false;  // in the table that is deleted from softly
      for (const char* const table : {"r.hard", "r.soft"}) {
        there = random_.Chance(50);
        world.db.Run(there ? fmt::format("UPDATE {} SET a = 'spoilt', b = NULL {}", table, where)
                           : fmt::format("DELETE FROM {} {}", table, where));
      }
      SentMessage repair = Base(stream, stream.last(), 90);
      repair.type = "Made";
      repair.snapshot = repair.overwrite = true;
      if (stream.states.back()) {
        repair.payload = Payload(stream, *stream.states.back());
      } else {
        repair.version = version;
        repair.absent = true;
        // No version is left of a row that was there; one that was deleted keeps the event's.
        const bool lives = stream.states[static_cast<size_t>(version)].has_value();
        if (there) gone_[stream.number] = lives ? 0 : version;
        if (!there) gone_[stream.number] = std::nullopt;
      }
      Came(stream, repair);
      repairs.push_back(std::move(repair));
    }
    return repairs;
  }

  void Check(SnapshotWorld& world) {
    std::vector<std::string> hard, soft, waiting, counts;
    int64_t dead = 0, blocking = 0;
    for (const Stream& stream : streams_) {
      const int64_t version = stream.known(ways_);
      const std::string key = stream.tenant + "|" + stream.id;
      const auto& state = stream.states[static_cast<size_t>(version)];
      const auto ghost = gone_.find(stream.number);
      const bool gone = !state || ghost != gone_.end();
      if (!gone) hard.push_back(fmt::format("{}|{}|{}|{}", key, state->a, state->b, version));
      if (!gone) soft.push_back(hard.back());
      std::optional<int64_t> left;
      if (gone && version > 0) left = ghost == gone_.end() ? version : ghost->second;
      if (left) soft.push_back(fmt::format("{}|gone|gone|{}", key, *left));
      int64_t parked = 0, changes = 0;
      for (const int64_t event : stream.events) {
        if (stream.poison.contains(event)) {
          ++dead;
          blocking += event > stream.snapshot;
        } else if (event > version) {
          ++parked;
        } else {
          changes += stream.types[static_cast<size_t>(event)] == "Changed";
        }
      }
      dead += stream.refused;
      const int64_t blocked = stream.blocked();
      if (parked > 0 || blocked > 0) {
        waiting.push_back(
            fmt::format("item@{}/{}|{}|{}", stream.tenant, stream.id, parked, blocked));
      }
      if (changes > 0) counts.push_back(fmt::format("{}|{}", stream.id, changes));
    }
    EXPECT_THAT(world.Rows("SELECT tenant, id, a, b, version FROM r.hard"),
                UnorderedElementsAreArray(hard));
    EXPECT_THAT(world.Rows("SELECT tenant, id, CASE WHEN deleted_at IS NULL THEN a ELSE 'gone' END,"
                           " CASE WHEN deleted_at IS NULL THEN b ELSE 'gone' END, version"
                           " FROM r.soft"),
                UnorderedElementsAreArray(soft));
    EXPECT_THAT(world.Rows("SELECT k.aggregate_key, k.parked, coalesce(k.blocked_version, 0)"
                           " FROM lockstep_state.key_state k"
                           " WHERE k.parked > 0 OR k.blocked_version IS NOT NULL"),
                UnorderedElementsAreArray(waiting));
    EXPECT_EQ(world.db.QueryInt("SELECT count(*) FROM lockstep_state.parked"),
              world.db.QueryInt("SELECT coalesce(sum(parked), 0) FROM lockstep_state.key_state"));
    const int64_t letters = world.db.QueryInt("SELECT count(*) FROM lockstep_state.dead_letters");
    // By versions, one that a snapshot stands for already is taken for one that came before.
    EXPECT_TRUE(ways_.by_versions ? letters >= blocking && letters <= dead : letters == dead)
        << letters << " of " << dead;
    EXPECT_EQ(world.db.QueryInt("SELECT count(*) FROM lockstep_state.inbox i"
                                " WHERE substr(event_id::text, 10, 4) = '0001'") > 0,
              !ways_.by_versions)
        << "a row per event";
    EXPECT_EQ(world.db.QueryInt("SELECT count(*) FROM lockstep_state.dead_letters"
                                " WHERE blocks AND state = 'dead'"),
              blocking);
    if (ways_.merges && !ways_.by_versions) {
      EXPECT_THAT(world.Rows("SELECT id, n FROM r.changes"), UnorderedElementsAreArray(counts));
    }
  }

 private:
  static std::string Payload(const Stream& stream, const Content& content) {
    return fmt::format(R"({{"id":"{}","a":"{}","b":"{}"}})", stream.id, content.a, content.b);
  }

  static SentMessage Base(const Stream& stream, int64_t version, int kind) {
    return {.event_id = fmt::format("{:08}-{:04}-4000-8000-{:012}", stream.number, kind, version),
            .tenant = stream.tenant,
            .id = stream.id,
            .version = version,
            .payload = fmt::format(R"({{"id":"{}"}})", stream.id)};
  }

  void Came(Stream& stream, const SentMessage& message) {
    if (!message.snapshot) {
      stream.events.insert(message.version);
    } else if (message.absent) {
      // It says nothing about versions.
    } else if (message.type == "Made" || !ways_.merges) {
      stream.snapshot = std::max(stream.snapshot, message.version);
    } else {
      stream.refused += refused_.insert(message.event_id).second;
    }
  }

  // One version after the other, as a source does it; a change is sometimes of one field alone.
  SentMessage Happen(Stream& stream) {
    const auto& before = stream.states.back();
    SentMessage sent = Base(stream, stream.last() + 1, 1);
    const std::string value = fmt::format("{}.{}", stream.id, sent.version);
    if (!before) {
      sent.type = "Made";
      stream.states.push_back(Content{value, value});
    } else if (random_.Chance(15)) {
      sent.type = "Gone";
      stream.states.push_back(std::nullopt);
    } else {
      sent.type = "Changed";
      Content after = *before;
      (random_.Chance(50) ? after.a : after.b) = value;
      stream.states.push_back(after);
      if (ways_.merges) {
        const bool first = after.a == value;
        sent.payload =
            fmt::format(R"({{"id":"{}","{}":"{}"}})", stream.id, first ? "a" : "b", value);
      }
    }
    const auto& now = stream.states.back();
    if (now && !(ways_.merges && sent.type == "Changed")) sent.payload = Payload(stream, *now);
    stream.types.push_back(sent.type);
    return sent;
  }

  Stream Make(int number) {
    Stream stream;
    stream.number = number;
    stream.tenant = fmt::format("t{}", number % 3);
    stream.id = fmt::format("i{}", ways_.merges ? number : number / 3);
    stream.states.emplace_back();
    stream.types.emplace_back();
    std::vector<SentMessage> published;
    const int versions = 1 + random_.Pick(9);
    for (int i = 0; i < versions; ++i) {
      SentMessage sent = Happen(stream);
      if (random_.Chance(6)) {
        stream.poison.insert(sent.version);
        sent.payload = "bad";
      }
      published.push_back(std::move(sent));
    }
    // The subscription begins somewhere, and some are lost on the way.
    const size_t begin = static_cast<size_t>(random_.Pick(2) * random_.Pick(versions));
    published.erase(published.begin(), published.begin() + static_cast<std::ptrdiff_t>(begin));
    std::erase_if(published, [&](const SentMessage&) { return random_.Chance(4); });
    for (int i = 0; i < static_cast<int>(published.size()); ++i) {
      stream.deliveries.push_back(published[static_cast<size_t>(i)]);
      // Pub/Sub goes back at times, and then on from there.
      if (random_.Chance(15)) i -= random_.Pick(i + 2);
    }
    AddSnapshots(stream);
    if (!stream.deliveries.empty()) open_.push_back(static_cast<size_t>(number));
    return stream;
  }

  // Chunks of one or more backfills, read at any time and delivered at any other, perhaps twice.
  void AddSnapshots(Stream& stream) {
    const int reads = random_.Pick(4);
    for (int backfill = 0; backfill < reads; ++backfill) {
      const int64_t version = 1 + random_.Pick(static_cast<int>(stream.last()));
      const auto& state = stream.states[static_cast<size_t>(version)];
      if (!state) continue;
      SentMessage sent = Base(stream, version, 2 + backfill);
      sent.type = random_.Chance(4) ? "Changed" : "Made";
      sent.payload = Payload(stream, *state);
      sent.snapshot = true;
      for (int times = random_.Chance(20) ? 2 : 1; times > 0; --times) {
        const int at = random_.Pick(static_cast<int>(stream.deliveries.size()) + 1);
        stream.deliveries.insert(stream.deliveries.begin() + at, sent);
      }
    }
  }

  Random random_;
  const Ways ways_;
  std::vector<Stream> streams_;
  std::vector<size_t> open_;
  std::set<std::string> refused_;
  std::map<int, std::optional<int64_t>> gone_;  // the version that is left of the soft row
};

class SnapshotStreams : public ::testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(SnapshotStreams, AreTheSourceAtTheHighestVersionThatCanBeKnown) {
  const auto [by_versions, number] = GetParam();
  const uint64_t seed = FirstSeed() + static_cast<uint64_t>(number);
  const Ways ways{
      .merges = seed % 2 == 0, .all_wait = by_versions || seed % 4 < 2, .by_versions = by_versions};
  SCOPED_TRACE(fmt::format("LOCKSTEP_SEED={} runner_snapshot_pgtest --gtest_filter='*/0'", seed));
  SnapshotWorld world(
      ways.merges,
      {.on_gap = ways.all_wait ? OnGap::kPark : OnGap::kDeclared, .baseline = Baseline::kSnapshot},
      by_versions);
  Streams streams(seed, ways);
  for (auto batch = streams.Next(); !batch.empty(); batch = streams.Next()) {
    // Sometimes what waits is left to transactions of its own.
    const std::vector<Fate> fates = world.Run(batch, {.max_events = streams.Chance(20) ? 0 : 500});
    ASSERT_EQ(fates.size(), batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      // A warning and an alert: a source that went back. None did.
      EXPECT_NE(fates[i], Fate::kSuperseded) << batch[i].id << " v" << batch[i].version;
    }
    if (::testing::Test::HasFailure()) return;
  }
  streams.Check(world);
  if (::testing::Test::HasFailure()) return;
  world.Run(streams.Spoil(world));
  SCOPED_TRACE("after the repair");
  streams.Check(world);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SnapshotStreams,
                         ::testing::Combine(::testing::Values(false), ::testing::Range(0, kCases)));
INSTANTIATE_TEST_SUITE_P(ByVersions, SnapshotStreams,
                         ::testing::Combine(::testing::Values(true),
                                            ::testing::Range(0, kCases / 2)));

}  // namespace
}  // namespace lockstep::runner
