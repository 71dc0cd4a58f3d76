#include "runner/batch/batch_run.h"

#include <algorithm>
#include <exception>

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

using projections::Outcome;

// A projection in C++ that throws must not end the lane: it is a fault of the event.
absl::StatusOr<std::vector<Outcome>> Project(const projections::Projector& projector,
                                             postgres::Transaction& transaction,
                                             const std::vector<const projections::Change*>& changes,
                                             const projections::ApplyOptions& options) {
  constexpr char kInternalError[] = "XX000";
  try {
    return projector.Apply(transaction, changes, options);
  } catch (const std::exception& e) {
    return postgres::SqlError(kInternalError, fmt::format("a projection threw: {}", e.what()));
  }
}

state::Fate FateOf(Fate fate) {
  if (Dies(fate)) return state::Fate::kDead;
  if (fate == Fate::kIgnored) return state::Fate::kIgnored;
  return fate == Fate::kApplied ? state::Fate::kApplied : state::Fate::kSuperseded;
}

}  // namespace

state::Fate ExpectedFate(const Inbound& item) {
  if (item.poison) return state::Fate::kDead;
  return item.change->ignored() ? state::Fate::kIgnored : state::Fate::kApplied;
}

void BatchRun::Add(Inbound* item, size_t index, bool seen) {
  Entry entry{.item = item, .index = index, .seen = seen};
  // A snapshot that can't be applied says nothing about its version: the events bring it. Nor does
  // one of what does not exist: its version is that of the row it takes away, whoever made that.
  if (item->ordered() && !(entry.snapshot() && (item->poison || item->event.absent))) {
    keys_[item->aggregate_key].entries.push_back(entry);
  } else {
    entry.fate = item->poison ? Fate::kDead : Fate::kApplied;
    loose_.push_back(entry);
  }
}

// A chain that holds nothing unusual can be settled by the statement that locks it.
std::vector<state::VersionSpan> BatchRun::Chains() {
  std::vector<state::VersionSpan> chains;
  for (auto& [name, key] : keys_) {
    Sort(key);
    const int64_t first = key.entries.front().item->event.version;
    state::VersionSpan chain{.aggregate_key = name,
                             .first = first,
                             .last = first,
                             .snapshot = key.entries.front().snapshot()};
    const Entry* settles = &key.entries.front();
    for (const Entry& entry : key.entries) {
      const int64_t version = entry.item->event.version;
      if (!chain.snapshot && Settles(entry, *settles)) settles = &entry;
      if (entry.blocks() || entry.seen || entry.snapshot() || version > chain.last + 1) {
        chain.smooth = false;
      }
      chain.last = version;
    }
    chain.alone = chain.snapshot && key.entries.size() == 1 && !key.entries.front().seen;
    key.alone = chain.alone;
    if (chain.smooth || chain.snapshot) chain.settles = settles->item->event.event_id.value();
    chains.push_back(std::move(chain));
  }
  return chains;
}

absl::Status BatchRun::Finish(BatchResult& result, std::optional<state::KeyRows> locked) {
  RETURN_IF_ERROR(FindDecisions());
  RETURN_IF_ERROR(LockKeys(std::move(locked)));
  if (resolution_ != nullptr) RETURN_IF_ERROR(ResolveDeadLetter());
  RETURN_IF_ERROR(Overtake(result));
  RETURN_IF_ERROR(PlanKeys(result));
  Collect(result);
  result.too_many_dead = NewlyDead() > limits_.max_dead;
  result.rolled_back = result.too_many_dead;
  if (result.rolled_back) return absl::OkStatus();
  RETURN_IF_ERROR(Apply(result));
  if (result.rolled_back) return absl::OkStatus();
  RETURN_IF_ERROR(Write());
  Report(result);
  return absl::OkStatus();
}

absl::Status BatchRun::FindDecisions() {
  std::vector<Entry*> poison;
  std::vector<const envelope::Received*> items;
  const auto look = [&](Entry& entry) {
    if (!entry.item->poison || entry.decision) return;
    poison.push_back(&entry);
    items.push_back(entry.item);
  };
  for (auto& [name, key] : keys_) std::ranges::for_each(key.entries, look);
  std::ranges::for_each(loose_, look);
  if (items.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto decisions, batch_.dead_letters_.Decisions(transaction_, items));
  for (size_t i = 0; i < poison.size(); ++i) poison[i]->decision = std::move(decisions[i]);
  return absl::OkStatus();
}

int64_t BatchRun::NewlyDead() const {
  return std::ranges::count_if(
      dead_, [](const auto& dead) { return !dead.decision || !dead.decision->discarded(); });
}

absl::Status BatchRun::LockKeys(std::optional<state::KeyRows> locked) {
  if (!locked && !keys_.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, key] : keys_) names.push_back(name);
    ASSIGN_OR_RETURN(locked, batch_.key_states_.Lock(transaction_, under_.generation, names));
  }
  if (under_.by_versions && resolution_ == nullptr) RETURN_IF_ERROR(DropKnown(*locked));
  for (auto& [name, key] : keys_) {
    const auto row = locked->find(name);
    bool poison = false;
    for (const Entry& entry : key.entries) {
      poison = poison || entry.blocks();
      if (entry.snapshot()) key.snapshot = entry.item->event.version;
    }
    if (row != locked->end()) {
      key.row = row->second;
    } else if (key.alone && batch_.key_rules_.track_versions) {
      // The statement that would have locked it has made it.
      key.row = {.exists = true,
                 .settled = key.snapshot,
                 .last_event = key.entries.front().item->event.event_id.value(),
                 .snapshot = key.snapshot};
    }
    key.planned = row != locked->end() || poison || key.changed || key.snapshot;
  }
  return MakeRows();
}

// An aggregate that is about to be blocked, or has a snapshot, for the first time has no row that
// could be locked: two transactions would decide side by side, and the second would overwrite what
// the first has parked.
absl::Status BatchRun::MakeRows() {
  const KeyRules& rules = batch_.key_rules_;
  if (rules.track_versions) return absl::OkStatus();
  std::vector<std::pair<std::string, std::optional<int64_t>>> names;
  for (const auto& [name, key] : keys_) {
    if (!key.planned || key.row.exists || key.entries.empty()) continue;
    if (rules.park_on_poison || key.snapshot) names.emplace_back(name, key.snapshot);
  }
  if (names.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const state::KeyRows made,
                   batch_.key_states_.Make(transaction_, under_.generation, names));
  for (const auto& [name, row] : made) keys_[name].row = row;
  return absl::OkStatus();
}

// What is dead up to a snapshot's version holds nothing back any longer.
absl::Status BatchRun::Overtake(BatchResult& result) {
  std::vector<std::pair<std::string, int64_t>> freed;
  for (const auto& [name, key] : keys_) {
    if (key.snapshot && key.row.blocked && *key.row.blocked <= *key.snapshot) {
      freed.emplace_back(name, *key.snapshot);
    }
  }
  if (freed.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(result.overtaken,
                   batch_.dead_letters_.Overtake(transaction_, under_.generation, freed));
  for (const auto& [name, version] : freed) {
    Key& key = keys_[name];
    ASSIGN_OR_RETURN(key.row.blocked,
                     batch_.dead_letters_.Blocking(transaction_, under_.generation, name));
    key.reconsider = key.changed = true;
  }
  return absl::OkStatus();
}

// Where versions are not followed, nothing kept a snapshot from coming between: it may have made
// the aggregate's row since this batch looked for one.
absl::StatusOr<bool> BatchRun::OvertakenMeanwhile(const Entry& entry) {
  if (batch_.key_rules_.track_versions || entry.snapshot()) return false;
  const std::string& name = entry.item->aggregate_key;
  ASSIGN_OR_RETURN(const state::KeyRows now,
                   batch_.key_states_.Lock(transaction_, under_.generation, {name}));
  const auto row = now.find(name);
  return row != now.end() && row->second.snapshot.value_or(0) >= entry.item->event.version;
}

// What a handler did in another generation of the read model, it need not do, or must know of.
absl::Status BatchRun::FindReplays(projections::ApplyOptions& options) {
  // Whose clock says when an epoch began and whose when a message was published are two, and either
  // may be an hour wrong.
  constexpr std::chrono::hours kClocksApart{3};
  replays_.assign(applied_.size(), batch_.rules_.shadow);
  if (!batch_.projector_.MindsReplays()) return absl::OkStatus();
  std::vector<const envelope::Received*> old;
  for (const Entry* entry : applied_) {
    if (entry->item->publish_time < under_.began + kClocksApart) old.push_back(entry->item);
  }
  if (!batch_.rules_.shadow && !under_.other_generations.empty() && !old.empty()) {
    ASSIGN_OR_RETURN(const auto handled,
                     batch_.inbox_.Handled(transaction_, under_.other_generations, old));
    for (size_t i = 0; i < applied_.size(); ++i) {
      replays_[i] = handled.contains(applied_[i]->item->event.event_id.value());
    }
  }
  for (size_t i = 0; i < applied_.size(); ++i) {
    if (applied_[i]->seen) replays_[i] = true;
  }
  options.replays = replays_;
  return absl::OkStatus();
}

// What dies must have changed nothing, or a replay would count it twice: it is run again as dead.
void BatchRun::MakePoison(Entry& entry, Poison poison, BatchResult& result) {
  entry.item->poison = std::move(poison);
  result.rolled_back = true;
  if (entry.parked_before()) {
    result.parked_conflicts.push_back({entry.item->event.event_id, *entry.item->poison, 1});
  }
}

// Whether a handler refused one of these events by its name.
bool BatchRun::Refuse(const absl::Status& failed, BatchResult& result) {
  const projections::Refusal refusal = projections::RefusalIn(failed);
  if (refusal.event.empty()) return false;
  for (Entry* entry : applied_) {
    if (entry->item->event.event_id != refusal.event) continue;
    MakePoison(*entry, Poison::RefusedByHandler(refusal.reason), result);
    return true;
  }
  return false;
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
    options.messages.push_back(entry->item);
    options.covered.push_back(Covered(*entry));
    if (options.overwrite) options.seen.push_back(entry->seen);
  }
  RETURN_IF_ERROR(FindReplays(options));
  const auto projected = Project(batch_.projector_, transaction_, changes, options);
  if (!projected.ok()) {
    return Refuse(projected.status(), result) ? absl::OkStatus() : projected.status();
  }
  const std::vector<Outcome>& outcomes = *projected;
  for (size_t i = 0; i < applied_.size(); ++i) {
    Entry& entry = *applied_[i];
    Inbound& item = *entry.item;
    if (outcomes[i] == Outcome::kSuperseded) {
      entry.fate = entry.snapshot() || options.covered[i] ? Fate::kOvertaken : Fate::kSuperseded;
    }
    if (outcomes[i] == Outcome::kIgnored) entry.fate = Fate::kIgnored;
    if (outcomes[i] == Outcome::kConflict) {
      ASSIGN_OR_RETURN(const bool overtaken, OvertakenMeanwhile(entry));
      if (overtaken) {
        result.rolled_back = true;  // the next run sees the snapshot
        continue;
      }
      MakePoison(entry, Poison::VersionConflict(item.event.version), result);
    }
    if (outcomes[i] == Outcome::kForeign) MakePoison(entry, Poison::ForeignRow(), result);
  }
  return absl::OkStatus();
}

absl::Status BatchRun::CallOutside(BatchResult& result) {
  const std::span<const projections::Call> targets = batch_.projector_.Calls();
  if (targets.empty() || batch_.rules_.shadow) return absl::OkStatus();
  std::vector<OutsideCall> calls;
  std::vector<Entry*> callers;
  for (size_t i = 0; i < applied_.size(); ++i) {
    Inbound& item = *applied_[i]->item;
    item.unanswered = false;
    for (const uint32_t call : item.change->calls_outside()) {
      if (replays_[i] && !targets[call].replays) continue;
      calls.push_back({.item = &item, .call = call, .replay = replays_[i]});
      callers.push_back(applied_[i]);
    }
  }
  if (calls.empty()) return absl::OkStatus();
  if (limits_.outside == nullptr) {
    return FailedPrecondition("handler {} can't be called from here",
                              targets[calls[0].call].handler);
  }
  ASSIGN_OR_RETURN(const Outside::Answers answers,
                   limits_.outside->Call(calls, [this] { return transaction_.Run("SELECT 1"); }));
  for (size_t i = 0; i < calls.size(); ++i) {
    const Verdict& verdict = answers.verdicts[i];
    Inbound& item = *callers[i]->item;
    if (verdict.kind == Verdict::kYes) continue;
    result.rolled_back = true;
    if (verdict.kind == Verdict::kNo) {
      if (!item.poison) MakePoison(*callers[i], Poison::RefusedByHandler(verdict.reason), result);
      continue;
    }
    item.unanswered = true;
    if (!result.outage) result.outage.emplace();
    result.outage->retry_after = answers.retry_after;
    if (result.outage->reason.empty()) result.outage->reason = verdict.reason;
  }
  for (const Entry* entry : applied_) {
    if (entry->parked_before() && !entry->item->unanswered && !entry->item->poison) {
      ++result.parked_answered;
    }
  }
  return absl::OkStatus();
}

absl::Status BatchRun::Write() {
  const int generation = under_.generation;
  RETURN_IF_ERROR(batch_.dead_letters_.Insert(transaction_, generation, dead_));
  RETURN_IF_ERROR(batch_.parking_.Remove(transaction_, generation, unparked_));
  RETURN_IF_ERROR(batch_.parking_.Park(transaction_, generation, parked_));
  state::KeyRows changed;
  for (const auto& [name, key] : keys_) {
    if (key.planned && (key.changed || key.next != key.row)) changed[name] = key.next;
  }
  RETURN_IF_ERROR(batch_.key_states_.Save(transaction_, generation, changed));
  return CorrectInbox();
}

// Mostly nothing: what was expected has come. What is expected now need not be what was when it
// came, of one that was parked, or that is replayed.
absl::Status BatchRun::CorrectInbox() {
  state::Inbox::Fates wrong;
  const auto look = [&](const Entry& entry) {
    const EventId& id = entry.item->event.event_id;
    if (id.value().empty() || Waits(entry.fate) || entry.fate == Fate::kDuplicate) return;
    if (under_.by_versions && !state::KnownById(*entry.item)) return;
    const bool came_before = entry.seen || entry.parked_before() || resolution_ != nullptr;
    if (!came_before && FateOf(entry.fate) == ExpectedFate(*entry.item)) return;
    // To be counted or merged once is to be applied, whatever a replay says that overwrites.
    if (entry.seen && entry.fate != Fate::kApplied) return;
    wrong.emplace_back(id, FateOf(entry.fate));
  };
  for (const auto& [name, key] : keys_) std::ranges::for_each(key.entries, look);
  std::ranges::for_each(loose_, look);
  return batch_.inbox_.Correct(transaction_, under_.generation, std::move(wrong));
}

void BatchRun::Report(BatchResult& result) {
  const auto report = [&](const Entry& entry) {
    if (!entry.parked_before()) {
      result.fates[entry.index] = entry.fate;
    } else if (!Waits(entry.fate)) {
      result.unparked.emplace_back(entry.item, entry.fate);
      if (!Dies(entry.fate)) ++result.released;
    }
  };
  for (const auto& [name, key] : keys_)
    std::for_each(key.entries.begin(), key.entries.end(), report);
  std::for_each(loose_.begin(), loose_.end(), report);
  result.dead = static_cast<int>(NewlyDead());
  result.loaded = std::move(unpacked_);
}

}  // namespace lockstep::runner
