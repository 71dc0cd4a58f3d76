#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "runner/batch/batch.h"

namespace lockstep::runner {

// What the inbox says of an event from the beginning; BatchRun corrects it where that was wrong.
state::Fate ExpectedFate(const Inbound& item);

// Whether it came again in a replay that overwrites.
bool Overwrites(const state::GroupEpoch& under, const Inbound& item);

// One transaction of a Batch: which events go on, what becomes of each, and what must be written
// about it. Made before the inbox is asked, as if all were new; made again if some were not.
// batch_run.cc has its steps, batch_known.cc finds what came before, batch_plan.cc decides,
// batch_resolve.cc ends a dead letter by hand.
class BatchRun {
 public:
  BatchRun(const Batch& batch, postgres::Transaction& transaction, const state::GroupEpoch& under,
           const ReleaseLimits& limits)
      : batch_(batch), transaction_(transaction), under_(under), limits_(limits) {}

  // A message of the batch; `seen` when the inbox knows it (which goes on only when a replay
  // overwrites).
  void Add(Inbound* item, size_t index, bool seen);
  // An aggregate whose waiting events may be due.
  void AddKey(const std::string& key) { keys_[key].reconsider = true; }
  // A dead letter of this aggregate is being resolved; a discarded one settles its version.
  void AddResolution(const Inbound& item, const state::DeadLetterResolution& resolution);

  // What came so far, for Opening; in the order of the keys.
  std::vector<state::VersionSpan> Chains();

  // Locks the aggregates (unless Opening has, and answered the rows that need a plan), decides,
  // applies and writes; fills `result` (whose fates the caller has sized).
  absl::Status Finish(BatchResult& result, std::optional<state::KeyRows> locked = std::nullopt);
  // Once all is written: has the HTTP handlers called that want what was applied. What they have
  // not accepted makes `result` one that is rolled back.
  absl::Status CallOutside(BatchResult& result);
  Loaded loaded() const { return loaded_; }

 private:
  static constexpr size_t kFromParking = static_cast<size_t>(-1);

  struct Entry {
    Inbound* item = nullptr;
    size_t index = kFromParking;  // in the batch
    bool seen = false;
    Fate fate = Fate::kApplied;
    // If it dies: what was decided about it in another generation.
    std::optional<state::DeadLetters::Decision> decision = std::nullopt;
    bool parked_before() const { return index == kFromParking; }
    bool given_up() const { return decision && decision->discarded(); }
    bool blocks() const { return item->poison && item->poison->blocks && !given_up(); }
    bool snapshot() const { return item->event.is_snapshot(); }
  };
  struct Key {
    std::vector<Entry> entries;  // in version order
    bool planned = false;
    bool reconsider = false;          // what waits may be due, whatever the entries say
    bool changed = false;             // whatever the plan says, the row must be written
    bool alone = false;               // opened with one snapshot and nothing else
    std::optional<int64_t> snapshot;  // the newest among the entries
    KeyRow row;                       // as locked
    KeyRow next;
    int loaded = 0;           // out of parking …
    int64_t last_loaded = 0;  // … up to this version
  };

  // Nobody is asked twice about an event.
  absl::Status FindDecisions();
  absl::Status LockKeys(std::optional<state::KeyRows> locked);
  // batch_known.cc: of events that are known by their versions.
  absl::Status DropKnown(const state::KeyRows& rows);
  absl::StatusOr<std::unordered_set<std::string>> FindWaiting(const state::KeyRows& rows);
  bool Forks(const Entry& entry, const KeyRow& row) const;
  // Whether the one, and not the other, is the event that settles their version or the later one.
  static bool Settles(const Entry& entry, const Entry& instead_of);
  static std::string LastEvent(const Key& key);

  absl::Status MakeRows();
  absl::Status Overtake(BatchResult& result);
  absl::StatusOr<bool> OvertakenMeanwhile(const Entry& entry);
  // Whether a snapshot stands for the event's version. REQUIRES: it was planned.
  bool Covered(const Entry& entry) const {
    const auto key = keys_.find(entry.item->aggregate_key);
    return !entry.snapshot() && key != keys_.end() && key->second.planned &&
           entry.item->event.version <= key->second.next.snapshot.value_or(0);
  }
  absl::Status Apply(BatchResult& result);
  absl::Status FindReplays(projections::ApplyOptions& options);
  bool Refuse(const absl::Status& failed, BatchResult& result);
  void MakePoison(Entry& entry, Poison poison, BatchResult& result);
  absl::Status Write();
  absl::Status CorrectInbox();
  void Report(BatchResult& result);
  int64_t NewlyDead() const;  // given up before: no new dead letter

  // batch_plan.cc
  static void Sort(Key& key);
  absl::Status PlanKeys(BatchResult& result);
  bool ParksOnGap(const Entry& entry) const;
  void Plan(Key& key) const;
  bool Ends(const Entry& entry) const;
  bool MayBegin(const Key& key) const;
  absl::Status LoadParked(const std::vector<std::string>& keys);
  static void DropTwins(Key& key);
  void MapParked(Inbound& item) const;
  static void HoldBack(Key& key, int64_t from);
  void Collect(BatchResult& result);
  void Collect(Key& key, Entry& entry);

  // batch_resolve.cc
  absl::Status ResolveDeadLetter();
  absl::Status CheckNoneIsMissing(const Key& key);

  const Batch& batch_;
  postgres::Transaction& transaction_;
  const state::GroupEpoch& under_;
  const ReleaseLimits& limits_;

  std::map<std::string, Key> keys_;
  std::vector<Entry> loose_;      // without a place in the order: dead, or takes a ghost away
  std::deque<Inbound> unpacked_;  // out of parking
  Loaded loaded_;
  const Inbound* resolved_ = nullptr;
  const state::DeadLetterResolution* resolution_ = nullptr;

  // What there is to write.
  std::vector<Entry*> applied_;
  std::vector<bool> replays_;  // of these, whether the group has handled them before
  std::vector<state::Parking::Parked> parked_;
  std::vector<const envelope::Received*> unparked_;
  std::vector<state::DeadLetters::Dead> dead_;
};

}  // namespace lockstep::runner
