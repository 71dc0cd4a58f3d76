#include "runner/batch/key_plan.h"

#include <algorithm>
#include <vector>

namespace lockstep::runner {
namespace {

// A reset left versions out, and it can't be said yet behind which: some wait.
bool AnyGap(const KeyRow& row) { return row.open && (row.blocked || row.parked > 0); }

bool Waits(const PlanItem& item, const KeyRow& row, const KeyRules& rules) {
  const bool past_gap =
      rules.track_versions && rules.gaps && item.version > *row.settled + 1 && !AnyGap(row);
  // A dead version that blocks needs no predecessor: it says itself what waits for it. One that is
  // skipped is settled by its death, and those before it, which may still come, must not be.
  if (item.poison) return past_gap && !rules.park_on_poison;
  if (row.blocked && item.version > *row.blocked) return true;
  return past_gap && item.parks_on_gap;
}

void Settle(PlanItem& item, KeyRow& row, const KeyRules& rules) {
  const bool settled_before =
      item.version <= std::max(row.settled.value_or(0), row.snapshot.value_or(0));
  if (item.poison && rules.park_on_poison && !settled_before) {
    item.fate = Fate::kDeadAndBlocking;
    row.blocked = row.blocked ? std::min(*row.blocked, item.version) : item.version;
    return;
  }
  item.fate = item.poison ? Fate::kDead : Fate::kApplied;
  if (rules.track_versions) row.settled = std::max(*row.settled, item.version);
}

// How the aggregate stands, whatever came of it before.
void TakeSnapshot(PlanItem& item, KeyRow& row, const KeyRules& rules) {
  item.fate = Fate::kApplied;
  row.snapshot = std::max(row.snapshot.value_or(0), item.version);
  if (rules.track_versions) row.settled = std::max(*row.settled, item.version);
}

// After a reset forward, the first version past what was settled before it. (A snapshot is none: it
// does not tell where the events go on.)
void FindBaseline(KeyRow& row, std::span<const PlanItem> items) {
  if (!row.open || AnyGap(row)) return;
  const auto next = std::find_if(items.begin(), items.end(), [&](const PlanItem& item) {
    return !item.snapshot && item.version > *row.settled;
  });
  if (next == items.end()) return;
  row.settled = next->version - 1;
  row.open = false;
}

// After a delete it is known how the row stands: there is none. What leads up to it without a gap
// is applied in the same transaction, so that nobody sees the halves of a row that it makes.
// Answers the version before the first of them; 0 = there is no such delete.
int64_t BaselineOfDelete(const KeyRow& row, std::span<const PlanItem> items) {
  int64_t last = items.front().version;
  for (const PlanItem& item : items) {
    if (item.poison || item.version > last + 1) break;
    if (row.blocked && item.version > *row.blocked) break;
    if (item.ends) return items.front().version - 1;
    last = item.version;
  }
  return 0;
}

}  // namespace

bool BeginsUnknown(const KeyRow& row, const KeyRules& rules) {
  return rules.track_versions && rules.from_the_first && row.settled.value_or(0) == 0 &&
         !row.snapshot && !row.open;
}

KeyRow PlanKey(KeyRow row, std::span<PlanItem> items, const KeyRules& rules) {
  if (items.empty()) return row;
  if (rules.track_versions && !row.settled) {
    const int64_t baseline = rules.from_the_first ? 0 : items.front().version - 1;
    row.settled = std::max(baseline, row.snapshot.value_or(0));
  }
  if (BeginsUnknown(row, rules)) row.settled = BaselineOfDelete(row, items);
  std::vector<bool> decided(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].snapshot) TakeSnapshot(items[i], row, rules);
    decided[i] = items[i].snapshot;
  }
  if (rules.track_versions) FindBaseline(row, items);
  // An event that does not mind a gap may settle a version past one that does: look again then.
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < items.size(); ++i) {
      if (decided[i] || Waits(items[i], row, rules)) continue;
      Settle(items[i], row, rules);
      decided[i] = moved = true;
    }
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (decided[i]) continue;
    items[i].fate = row.blocked && items[i].version > *row.blocked ? Fate::kWaitsForDeadLetter
                                                                   : Fate::kWaitsForPredecessor;
  }
  return row;
}

}  // namespace lockstep::runner
