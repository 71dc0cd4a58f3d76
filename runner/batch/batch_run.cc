#include "runner/batch/batch_run.h"

#include <algorithm>
#include <exception>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "runner/message/mapping.h"

namespace lockstep::runner {
namespace {

constexpr char kInternalError[] = "XX000";

bool Waits(Fate fate) {
  return fate == Fate::kWaitsForPredecessor || fate == Fate::kWaitsForDeadLetter;
}

Ending EndingOf(projections::Outcome outcome) {
  switch (outcome) {
    case projections::Outcome::kSuperseded:
      return Ending::kSuperseded;
    case projections::Outcome::kIgnored:
      return Ending::kIgnored;
    case projections::Outcome::kConflict:
    case projections::Outcome::kForeign:  // rolled back
    case projections::Outcome::kApplied:
      break;
  }
  return Ending::kApplied;
}

// A projection in C++ that throws must not end the lane: it is a fault of the event.
absl::StatusOr<std::vector<projections::Outcome>> Project(
    const projections::Projector& projector, postgres::Transaction& transaction,
    const std::vector<const projections::Change*>& changes,
    const projections::ApplyOptions& options) {
  try {
    return projector.Apply(transaction, changes, options);
  } catch (const std::exception& e) {
    return postgres::SqlError(kInternalError, fmt::format("a projection threw: {}", e.what()));
  }
}

}  // namespace

void BatchRun::Add(Inbound* item, size_t index, bool seen) {
  Entry entry{.item = item, .index = index, .seen = seen};
  if (item->ordered()) {
    keys_[item->aggregate_key].entries.push_back(entry);
  } else {
    entry.fate = Fate::kDie;
    loose_.push_back(entry);
  }
}

void BatchRun::AddKey(const std::string& key) { keys_[key].reconsider = true; }

void BatchRun::AddResolution(const Inbound& item, const state::DeadLetterResolution& resolution) {
  resolved_ = &item;
  resolution_ = &resolution;
  if (!item.ordered()) return;
  Key& key = keys_[item.aggregate_key];
  key.reconsider = key.changed = true;
}

absl::Status BatchRun::Finish(BatchResult& result) {
  RETURN_IF_ERROR(LockKeys());
  if (resolution_ != nullptr) RETURN_IF_ERROR(ResolveDeadLetter());
  RETURN_IF_ERROR(PlanKeys(result));
  Collect(result);
  result.too_many_dead = static_cast<int64_t>(dead_.size()) > limits_.max_dead;
  result.rolled_back = result.too_many_dead;
  if (result.rolled_back) return absl::OkStatus();
  RETURN_IF_ERROR(Apply(result));
  if (result.rolled_back) return absl::OkStatus();
  RETURN_IF_ERROR(Write(result));
  result.loaded = std::move(loaded_);
  return absl::OkStatus();
}

// A chain that holds nothing unusual can be settled by the statement that locks it.
state::Chain BatchRun::ChainOf(const std::string& name, const Key& key) const {
  state::Chain chain{.aggregate_key = name};
  chain.first = key.entries.front().item->event.version;
  chain.last = chain.first;
  for (const Entry& entry : key.entries) {
    const int64_t version = entry.item->event.version;
    if (entry.blocks() || entry.seen || version > chain.last + 1) chain.smooth = false;
    chain.last = version;
  }
  return chain;
}

std::vector<state::Chain> BatchRun::Chains() {
  std::vector<state::Chain> chains;
  for (auto& [name, key] : keys_) {
    std::stable_sort(key.entries.begin(), key.entries.end(), [](const Entry& a, const Entry& b) {
      return a.item->event.version < b.item->event.version;
    });
    chains.push_back(ChainOf(name, key));
    key.locked = true;
  }
  return chains;
}

absl::Status BatchRun::LockKeys() {
  std::vector<std::string> names;
  for (const auto& [name, key] : keys_) {
    if (!key.locked) names.push_back(name);
  }
  state::KeyRows rows = std::move(locked_);
  if (!names.empty()) {
    ASSIGN_OR_RETURN(state::KeyRows others,
                     batch_.key_states_.Lock(transaction_, under_.generation, names));
    rows.merge(others);
  }
  for (auto& [name, key] : keys_) {
    const auto row = rows.find(name);
    if (row != rows.end()) key.row = row->second;
    const bool poison = std::any_of(key.entries.begin(), key.entries.end(),
                                    [](const Entry& e) { return e.blocks(); });
    key.planned = row != rows.end() || poison || key.changed;
  }
  return MakeRows();
}

// An aggregate that is about to be blocked for the first time has no row that could be locked: two
// transactions would decide side by side, and the second would overwrite what the first has parked.
absl::Status BatchRun::MakeRows() {
  if (rules().track_versions || !rules().park_on_poison) return absl::OkStatus();
  std::vector<std::string> names;
  for (const auto& [name, key] : keys_) {
    if (key.planned && !key.row.exists && !key.entries.empty()) names.push_back(name);
  }
  if (names.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const state::KeyRows made,
                   batch_.key_states_.Make(transaction_, under_.generation, names));
  for (const auto& [name, row] : made) keys_[name].row = row;
  return absl::OkStatus();
}

// Under the aggregate's lock, so that an event which comes meanwhile either sees it resolved or has
// parked where this transaction finds it.
absl::Status BatchRun::ResolveDeadLetter() {
  RETURN_IF_ERROR(batch_.dead_letters_.Resolve(transaction_, *resolution_));
  if (!resolved_->ordered()) return absl::OkStatus();
  Key& key = keys_[resolved_->aggregate_key];
  ASSIGN_OR_RETURN(key.row.blocked, batch_.dead_letters_.Blocking(transaction_, under_.generation,
                                                                  resolved_->aggregate_key));
  if (!resolution_->replay && rules().track_versions) {
    RETURN_IF_ERROR(CheckNoneIsMissing(key));
    key.row.settled = std::max(key.row.settled.value_or(0), resolved_->event.version);
  }
  return absl::OkStatus();
}

// To give up a version settles those before it. What is dead or parked among them is at hand all
// the same; what has not come yet would be given up with it.
absl::Status BatchRun::CheckNoneIsMissing(const Key& key) {
  const int64_t version = resolved_->event.version;
  // (After a reset forward some were left out on purpose.)
  if (resolution_->accept_missing || key.row.open || !key.row.settled ||
      version <= *key.row.settled + 1) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t at_hand, batch_.dead_letters_.AtHand(
                                              transaction_, under_.generation,
                                              resolved_->aggregate_key, *key.row.settled, version));
  if (at_hand >= version - *key.row.settled - 1) return absl::OkStatus();
  return FailedPrecondition(
      "dead letter {} is version {} of {}, and versions from {} on have not all come: discarding "
      "gives them up too; wait for them, or say --accept-missing",
      resolution_->id, version, resolved_->aggregate_key, *key.row.settled + 1);
}

void BatchRun::Plan(Key& key) {
  std::vector<PlanItem> items;
  items.reserve(key.entries.size());
  for (const Entry& entry : key.entries) {
    const projections::Event& event = entry.item->event;
    items.push_back({.version = event.version,
                     .poison = entry.blocks(),
                     .parks_on_gap = !entry.item->poison &&
                                     batch_.rules_.ParksOnGap(batch_.projector_, event)});
  }
  key.next = PlanKey(key.row, items, rules());
  for (size_t i = 0; i < items.size(); ++i) key.entries[i].fate = items[i].fate;
  key.next.parked = key.row.parked;
}

absl::Status BatchRun::PlanKeys(BatchResult& result) {
  std::vector<std::string> due;
  const bool track = rules().track_versions;
  for (auto& [name, key] : keys_) {
    if (!key.planned) continue;
    Plan(key);
    // Only what may have come free is read: a long queue behind a dead letter or a gap must not be
    // read again with every new event.
    const bool moved =
        key.reconsider || key.next.settled != key.row.settled || (!track && !key.next.blocked);
    if (key.row.parked > 0 && moved) due.push_back(name);
  }
  if (due.empty()) return absl::OkStatus();
  if (limits_.max_events > 0) RETURN_IF_ERROR(LoadParked(due));
  for (const std::string& name : due) {
    Key& key = keys_[name];
    const auto load = loads_.find(name);
    if (load != loads_.end()) {
      Plan(key);
      if (!track && load->second.events < key.row.parked) HoldBack(key, load->second.last);
    } else if (limits_.max_events == 0 || !loads_.empty()) {  // one more transaction takes them
      // (None anywhere: the count is wrong, and to ask again would never end.)
      if (!track) HoldBack(key, 0);
      result.unfinished.push_back(name);
    }
  }
  return absl::OkStatus();
}

// Some that are due stay where they are: what came after them goes there too, not past them. (Where
// versions are followed, the plan sees to that.)
void BatchRun::HoldBack(Key& key, int64_t loaded) const {
  for (Entry& entry : key.entries) {
    const bool comes_now = !entry.parked_before() && !entry.seen && entry.fate == Fate::kApply;
    if (comes_now && entry.item->event.version > loaded) entry.fate = Fate::kWaitsForDeadLetter;
  }
}

absl::Status BatchRun::LoadParked(const std::vector<std::string>& keys) {
  ASSIGN_OR_RETURN(std::vector<envelope::Received> waiting,
                   batch_.parking_.Load(transaction_, under_.generation, keys, limits_.max_events,
                                        limits_.max_bytes));
  for (envelope::Received& kept_message : waiting) {
    Inbound* const kept = &loaded_.emplace_back(std::move(kept_message));
    if (++was_loaded_.events == 1) was_loaded_.first = kept->event.event_id;
    MapParked(*kept);
    Load& load = loads_[kept->aggregate_key];
    ++load.events;
    load.last = kept->event.version;
    keys_[kept->aggregate_key].entries.push_back({.item = kept});
  }
  for (const std::string& name : keys) {
    Entries& entries = keys_[name].entries;
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.item->event.version < b.item->event.version;
    });
  }
  return absl::OkStatus();
}

// It was mapped when it came; the projection may have changed since.
void BatchRun::MapParked(Inbound& item) const {
  for (const Condemned& one : limits_.condemned) {
    if (one.event != item.event.event_id) continue;
    item.poison = one.poison;
    item.attempts = one.attempts;
  }
  if (!item.poison) MapEvent(batch_.projector_, item);
}

void BatchRun::End(const Entry& entry, Ending ending, BatchResult& result) const {
  if (entry.parked_before()) {
    result.unparked.emplace_back(entry.item, ending);
    if (ending != Ending::kDead) ++result.released;
  } else {
    result.endings[entry.index] = ending;
  }
}

void BatchRun::Collect(BatchResult& result) {
  for (auto& [name, key] : keys_) {
    int still = 0;
    for (Entry& entry : key.entries) {
      if (Waits(entry.fate)) {
        const bool gap = entry.fate == Fate::kWaitsForPredecessor;
        if (entry.parked_before()) {
          ++still;
          continue;
        }
        if (entry.seen) {  // it waits already
          End(entry, Ending::kDuplicate, result);
          continue;
        }
        parked_.push_back(
            {entry.item, gap ? state::Parking::Reason::kGap : state::Parking::Reason::kPoison});
        ++key.next.parked;
        result.gaps += gap ? 1 : 0;
        End(entry, Ending::kParked, result);
        continue;
      }
      if (entry.parked_before()) {
        unparked_.push_back(entry.item);
        --key.next.parked;
      }
      if (entry.fate != Fate::kApply || entry.item->poison) {
        dead_.push_back({entry.item, entry.fate == Fate::kDieAndBlock});
        End(entry, Ending::kDead, result);
      } else {
        applied_.push_back(&entry);
      }
    }
    // All that was read is through and there is more: another transaction goes on with it.
    if (loads_.contains(name) && still == 0 && key.next.parked > 0) {
      result.unfinished.push_back(name);
    }
  }
  for (const Entry& entry : loose_) {
    dead_.push_back({entry.item, false});
    End(entry, Ending::kDead, result);
  }
}

absl::Status BatchRun::Apply(BatchResult& result) {
  if (applied_.empty()) return absl::OkStatus();
  std::vector<const projections::Change*> changes;
  projections::ApplyOptions options{.generation = under_.generation};
  // Until the replay is through; a fork of the source shall be told again then.
  options.overwrite = under_.overwrite_until &&
                      std::any_of(applied_.begin(), applied_.end(), [&](const Entry* entry) {
                        return entry->item->publish_time < *under_.overwrite_until;
                      });
  changes.reserve(applied_.size());
  for (const Entry* entry : applied_) {
    changes.push_back(entry->item->change.get());
    if (options.overwrite) options.seen.push_back(entry->seen);
  }
  ASSIGN_OR_RETURN(const std::vector<projections::Outcome> outcomes,
                   Project(batch_.projector_, transaction_, changes, options));
  for (size_t i = 0; i < applied_.size(); ++i) {
    Entry& entry = *applied_[i];
    if (outcomes[i] == projections::Outcome::kConflict) {
      entry.item->poison = Poison{
          "EVENT.VERSION_CONFLICT",
          fmt::format("the read model holds version {} of this aggregate from another event: a "
                      "forked or restored source",
                      entry.item->event.version),
          false};
    } else if (outcomes[i] == projections::Outcome::kForeign) {
      entry.item->poison = Poison{
          "EVENT.FOREIGN_ROW",
          "a row that this event names belongs to another aggregate; a versioned table's key must "
          "tell the aggregates (and tenants) apart",
          false};
    } else {
      End(entry, EndingOf(outcomes[i]), result);
      continue;
    }
    // That is known when its other tables have been written: what dies must have changed nothing,
    // or a replay would count it twice.
    result.rolled_back = true;
    if (entry.parked_before()) {
      result.parked_conflicts.push_back({entry.item->event.event_id, *entry.item->poison, 1});
    }
  }
  return absl::OkStatus();
}

absl::Status BatchRun::Write(BatchResult& result) {
  const int generation = under_.generation;
  result.dead = static_cast<int>(dead_.size());
  RETURN_IF_ERROR(batch_.dead_letters_.Insert(transaction_, generation, dead_));
  RETURN_IF_ERROR(batch_.parking_.Remove(transaction_, generation, unparked_));
  RETURN_IF_ERROR(batch_.parking_.Park(transaction_, generation, parked_));
  state::KeyRows changed;
  for (const auto& [name, key] : keys_) {
    if (key.planned && (key.changed || key.next != key.row)) changed[name] = key.next;
  }
  return batch_.key_states_.Save(transaction_, generation, changed);
}

}  // namespace lockstep::runner
