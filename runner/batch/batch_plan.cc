// The part of BatchRun that decides what becomes of each event, once its aggregate is locked.
#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "platform/status.h"
#include "runner/batch/batch_run.h"

namespace lockstep::runner {

// Of one version a snapshot comes first: it holds what the event says, and it may stand on versions
// that are missing here. One that overwrites comes before those that don't, the last to come first.
void BatchRun::Sort(Key& key) {
  const auto place = [](const Entry& entry) {
    const projections::Event& event = entry.item->event;
    const int rank = event.overwrite ? 0 : event.is_snapshot() ? 1 : 2;
    return std::tuple(event.version, rank, event.overwrite ? ~entry.index : 0);
  };
  std::stable_sort(key.entries.begin(), key.entries.end(),
                   [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
}

// One that was given up settles its version, and those before it, which may still come, must not
// be.
bool BatchRun::ParksOnGap(const Entry& entry) const {
  if (entry.given_up()) return batch_.minds_gaps();
  return !entry.item->poison &&
         batch_.rules_.ParksOnGap(batch_.projector_.ParksOnGap(entry.item->event));
}

void BatchRun::Plan(Key& key) const {
  std::vector<PlanItem> items;
  items.reserve(key.entries.size());
  const bool all_at_hand = key.row.parked == 0 || key.loaded > 0;
  for (const Entry& entry : key.entries) {
    const projections::Event& event = entry.item->event;
    items.push_back({.version = event.version,
                     .poison = entry.blocks(),
                     .parks_on_gap = ParksOnGap(entry),
                     .snapshot = event.is_snapshot(),
                     .ends = all_at_hand && Ends(entry)});
  }
  key.next = PlanKey(key.row, items, batch_.key_rules_);
  for (size_t i = 0; i < items.size(); ++i) key.entries[i].fate = items[i].fate;
  key.next.parked = key.row.parked;
}

bool BatchRun::Ends(const Entry& entry) const {
  return batch_.key_rules_.from_the_first && !entry.item->poison && !entry.snapshot() &&
         batch_.projector_.LeavesNothing(entry.item->event);
}

// Whether a delete came that may begin the aggregate, together with what waits.
bool BatchRun::MayBegin(const Key& key) const {
  return BeginsUnknown(key.row, batch_.key_rules_) &&
         std::ranges::any_of(key.entries, [this](const Entry& entry) { return Ends(entry); });
}

absl::Status BatchRun::PlanKeys(BatchResult& result) {
  std::vector<std::string> due;
  const bool gaps = batch_.minds_gaps();
  for (auto& [name, key] : keys_) {
    if (!key.planned) continue;
    Plan(key);
    // Only what may have come free is read: a long queue behind a dead letter or a gap must not be
    // read again with every new event.
    const bool moved = key.reconsider || key.next.settled != key.row.settled ||
                       (!gaps && !key.next.blocked) || (key.row.parked > 0 && MayBegin(key));
    if (key.row.parked > 0 && moved) due.push_back(name);
  }
  if (due.empty()) return absl::OkStatus();
  if (limits_.max_events > 0) {
    RETURN_IF_ERROR(LoadParked(due));
    // The count is wrong, and to ask again would never end.
    if (loaded_.events == 0) return absl::OkStatus();
  }
  for (const std::string& name : due) {
    Key& key = keys_[name];
    if (key.loaded > 0) {
      DropTwins(key);
      Plan(key);
    } else {
      result.unfinished.push_back(name);  // one more transaction takes them
    }
    if (key.loaded >= key.row.parked) continue;
    if (!gaps) {
      HoldBack(key, key.last_loaded);
      continue;
    }
    // A dead letter that is replayed goes before what waits for it.
    if (resolution_ != nullptr) continue;
    ASSIGN_OR_RETURN(
        const std::optional<int64_t> left,
        batch_.parking_.Lowest(transaction_, under_.generation, name, key.last_loaded));
    if (left) HoldBack(key, *left);
  }
  return absl::OkStatus();
}

absl::Status BatchRun::LoadParked(const std::vector<std::string>& keys) {
  ASSIGN_OR_RETURN(std::vector<envelope::Received> waiting,
                   batch_.parking_.Load(transaction_, under_.generation, keys, limits_.max_events,
                                        limits_.max_bytes));
  for (envelope::Received& message : waiting) {
    Inbound* const kept = &unpacked_.emplace_back(std::move(message));
    if (++loaded_.events == 1) loaded_.first = kept->event.event_id;
    MapParked(*kept);
    Key& key = keys_[kept->aggregate_key];
    ++key.loaded;
    key.last_loaded = kept->event.version;
    key.entries.push_back({.item = kept});
  }
  for (const std::string& name : keys) Sort(keys_[name]);
  return FindDecisions();
}

// What a replay brings again of events that wait: they are applied as they wait, and once.
void BatchRun::DropTwins(Key& key) {
  std::set<std::string_view> waiting;
  for (const Entry& entry : key.entries) {
    if (entry.parked_before()) waiting.insert(entry.item->event.event_id.value());
  }
  const bool more = key.loaded < key.row.parked;
  std::erase_if(key.entries, [&](const Entry& entry) {
    return entry.seen && (waiting.contains(entry.item->event.event_id.value()) ||
                          (more && entry.item->event.version > key.last_loaded));
  });
}

// It was mapped when it came; the projection may have changed since.
void BatchRun::MapParked(Inbound& item) const {
  for (const MarkedDead& one : limits_.marked_dead) {
    if (one.event != item.event.event_id) continue;
    item.poison = one.poison;
    item.attempts = one.attempts;
  }
  if (!item.poison) MapEvent(batch_.projector_, item);
}

// Some that are due stay where they are: what came after them goes there too, not past them. (Where
// events park on a gap, the plan sees to that, unless a snapshot or an operator settled their
// versions.)
void BatchRun::HoldBack(Key& key, int64_t from) {
  for (Entry& entry : key.entries) {
    const bool comes_now =
        !entry.parked_before() && !entry.seen && !entry.snapshot() && entry.fate == Fate::kApplied;
    if (comes_now && entry.item->event.version > from) {
      entry.fate = Fate::kWaitsForDeadLetter;
    }
  }
  if (!key.next.settled) return;
  // Only what does not wait is settled, and what is not waited for.
  key.next.settled = key.row.settled;
  for (const Entry& entry : key.entries) {
    if (Waits(entry.fate) || entry.fate == Fate::kDeadAndBlocking) continue;
    key.next.settled = std::max(key.next.settled.value_or(0), entry.item->event.version);
  }
}

void BatchRun::Collect(BatchResult& result) {
  for (auto& [name, key] : keys_) {
    if (key.planned) key.next.last_event = LastEvent(key);
    for (Entry& entry : key.entries) Collect(key, entry);
    const bool all_through =
        std::none_of(key.entries.begin(), key.entries.end(),
                     [](const Entry& entry) { return entry.parked_before() && Waits(entry.fate); });
    // All that was read is through and there is more: another transaction goes on with it.
    if (key.loaded > 0 && all_through && key.next.parked > 0) result.unfinished.push_back(name);
  }
  for (Entry& entry : loose_) {
    if (Dies(entry.fate)) {
      dead_.push_back({entry.item, /*blocks=*/false, entry.decision});
    } else {
      applied_.push_back(&entry);
    }
  }
}

void BatchRun::Collect(Key& key, Entry& entry) {
  if (Waits(entry.fate)) {
    if (entry.parked_before()) return;
    if (entry.seen) {
      entry.fate = Fate::kDuplicate;  // it waits already
      return;
    }
    parked_.push_back({entry.item, entry.fate == Fate::kWaitsForPredecessor
                                       ? state::Parking::Reason::kGap
                                       : state::Parking::Reason::kPoison});
    ++key.next.parked;
    return;
  }
  if (entry.parked_before()) {
    unparked_.push_back(entry.item);
    --key.next.parked;
  }
  if (entry.item->poison && !Dies(entry.fate)) entry.fate = Fate::kDead;
  if (Dies(entry.fate)) {
    dead_.push_back({entry.item, entry.fate == Fate::kDeadAndBlocking, entry.decision});
  } else {
    applied_.push_back(&entry);
  }
}

}  // namespace lockstep::runner
