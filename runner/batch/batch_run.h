#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runner/batch/batch.h"

namespace lockstep::runner {

// One transaction of a Batch: which events go on, what becomes of each, and what must be written
// about it. Made before the inbox is asked, as if all were new; made again if some were not.
class BatchRun {
 public:
  BatchRun(const Batch& batch, postgres::Transaction& transaction, const state::GroupEpoch& under,
           const ReleaseLimits& limits)
      : batch_(batch), transaction_(transaction), under_(under), limits_(limits) {}

  // A message of the batch; `seen` when the inbox knows it (which goes on only when a replay
  // overwrites).
  void Add(Inbound* item, size_t index, bool seen);
  // An aggregate whose waiting events may be due.
  void AddKey(const std::string& key);

  // A dead letter of this aggregate is being resolved; a discarded one settles its version.
  void AddResolution(const Inbound& item, const state::DeadLetterResolution& resolution);

  // What came so far, for Opening; in the order of the keys.
  std::vector<state::Chain> Chains();
  // Opening has locked them; these rows need a plan.
  void Locked(state::KeyRows rows) { locked_ = std::move(rows); }

  // Locks, decides, applies and writes; fills `result` (whose endings the caller has sized).
  absl::Status Finish(BatchResult& result);
  Loaded loaded() const { return was_loaded_; }

 private:
  static constexpr size_t kFromParking = static_cast<size_t>(-1);

  struct Entry {
    Inbound* item = nullptr;
    size_t index = kFromParking;  // in the batch
    bool seen = false;
    Fate fate = Fate::kApply;
    bool parked_before() const { return index == kFromParking; }
    bool blocks() const { return item->poison && item->poison->blocks; }
  };
  using Entries = std::vector<Entry>;
  struct Key {
    Entries entries;      // in version order
    bool locked = false;  // by Opening
    bool planned = false;
    bool reconsider = false;  // what waits may be due, whatever the entries say
    bool changed = false;     // whatever the plan says, the row must be written
    state::KeyRow row;        // as locked
    state::KeyRow next;
  };

  absl::Status LockKeys();
  absl::Status ResolveDeadLetter();
  absl::Status PlanKeys(BatchResult& result);
  absl::Status LoadParked(const std::vector<std::string>& keys);
  absl::Status MakeRows();
  void HoldBack(Key& key, int64_t loaded) const;
  void Plan(Key& key);
  void MapParked(Inbound& item) const;
  absl::Status CheckNoneIsMissing(const Key& key);
  absl::Status Apply(BatchResult& result);
  absl::Status Write(BatchResult& result);
  void Collect(BatchResult& result);
  state::Chain ChainOf(const std::string& name, const Key& key) const;
  const KeyRules& rules() const { return batch_.key_rules_; }
  void End(const Entry& entry, Ending ending, BatchResult& result) const;

  const Batch& batch_;
  postgres::Transaction& transaction_;
  const state::GroupEpoch& under_;
  const ReleaseLimits& limits_;

  std::map<std::string, Key> keys_;
  state::KeyRows locked_;
  Entries loose_;               // dead without a readable aggregate or version
  std::deque<Inbound> loaded_;  // out of parking
  const Inbound* resolved_ = nullptr;
  const state::DeadLetterResolution* resolution_ = nullptr;
  std::vector<Entry*> applied_;
  std::vector<state::Parking::Parked> parked_;
  std::vector<const envelope::Received*> unparked_;
  std::vector<state::DeadLetters::Dead> dead_;
  // How many parked events were loaded per aggregate, and the last one's version.
  struct Load {
    int events = 0;
    int64_t last = 0;
  };
  std::map<std::string, Load> loads_;
  Loaded was_loaded_;
};

}  // namespace lockstep::runner
