// The part of BatchRun for a generation that knows events again by their versions: what is settled
// came before, and so did what waits or is dead. (Snapshots, and messages without a version, the
// inbox knows by their ids.)
#include <optional>

#include "platform/status.h"
#include "runner/batch/batch_run.h"

namespace lockstep::runner {

bool Overwrites(const state::GroupEpoch& under, const Inbound& item) {
  return under.overwrite_until && !item.poison && item.publish_time < *under.overwrite_until;
}

// Another event has settled the version. Where it is not known which one did, or a snapshot stands
// for it, nothing is said.
bool BatchRun::Forks(const Entry& entry, const KeyRow& row) const {
  const projections::Event& event = entry.item->event;
  return event.version == row.settled && event.version > row.snapshot.value_or(0) &&
         !row.last_event.empty() && row.last_event != event.event_id.value();
}

absl::StatusOr<std::unordered_set<std::string>> BatchRun::FindWaiting(const state::KeyRows& rows) {
  std::vector<const envelope::Received*> asked;
  for (const auto& [name, row] : rows) {
    const bool some_wait = row.parked > 0 || row.blocked;
    for (const Entry& entry : keys_[name].entries) {
      if (entry.snapshot()) continue;
      const bool settled = entry.item->event.version <= row.settled.value_or(0);
      if (settled ? Forks(entry, row) : some_wait) asked.push_back(entry.item);
    }
  }
  if (asked.empty()) return std::unordered_set<std::string>();
  return batch_.inbox_.Waiting(transaction_, under_.generation, asked);
}

// REQUIRES: the rows are locked. An aggregate without one is new as a whole.
absl::Status BatchRun::DropKnown(const state::KeyRows& rows) {
  ASSIGN_OR_RETURN(const auto waiting, FindWaiting(rows));
  bool forked = false;
  for (const auto& [name, row] : rows) {
    std::erase_if(keys_[name].entries, [&](Entry& entry) {
      if (entry.snapshot()) return false;
      const projections::Event& event = entry.item->event;
      const bool settled = event.version <= row.settled.value_or(0);
      const bool overwrites = Overwrites(under_, *entry.item);
      const bool known =
          waiting.contains(event.event_id.value()) || (settled && !Forks(entry, row));
      if (known && overwrites) entry.seen = true;
      if (known) return !entry.seen;
      // While a replay overwrites, the source may say otherwise than it did.
      if (settled && !overwrites && !entry.item->poison) {
        entry.item->poison = Poison::VersionConflict(event.version);
        forked = true;
      }
      return false;
    });
  }
  return forked ? FindDecisions() : absl::OkStatus();
}

// What is no poison comes first: it has changed the row.
bool BatchRun::Settles(const Entry& entry, const Entry& instead_of) {
  const int64_t version = entry.item->event.version;
  const int64_t other = instead_of.item->event.version;
  if (version != other) return version > other;
  return instead_of.item->poison && !entry.item->poison;
}

// The event that settled the version up to which all has found its end; empty = it was given up.
std::string BatchRun::LastEvent(const Key& key) {
  const bool moved = key.next.settled != key.row.settled;
  const Entry* last = nullptr;
  for (const Entry& entry : key.entries) {
    if (entry.item->event.version != key.next.settled || Waits(entry.fate)) continue;
    if (entry.fate == Fate::kDeadAndBlocking || (!moved && entry.item->poison)) continue;
    if (last == nullptr || Settles(entry, *last)) last = &entry;
  }
  if (last != nullptr) return last->item->event.event_id.value();
  return moved ? "" : key.row.last_event;
}

}  // namespace lockstep::runner
