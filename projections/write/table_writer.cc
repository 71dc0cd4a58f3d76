#include "projections/write/table_writer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::projections {
namespace {

using postgres::Params;
using postgres::Result;

// A row on its way: the steps that are still to be written, in version order, and what they fold
// to. Of steps with one version only the first is folded: the others are a fork of it, unless it is
// a snapshot, which holds what they say. Nor are steps folded of another aggregate than the first
// that came, where rows have an owner.
struct Pending {
  std::vector<Step> steps;
  FoldedRow row;
  bool overwrite = false;              // takes the place of the stored version itself, too
  const std::string* owner = nullptr;  // null = rows of this table have none

  bool Foreign(const Step& step) const {
    return owner != nullptr && step.change->aggregate != *owner;
  }
};

class VersionedWriter {
 public:
  VersionedWriter(const WriteContext& context, std::vector<Outcome>* outcomes)
      : context_(context),
        table_(context.table),
        plan_(context.plan),
        // The stored version itself is accepted on tables whose events are replaced whole.
        replays_over_(context.options.overwrite && !context.table.merges),
        outcomes_(*outcomes) {}

  absl::Status Write(std::vector<RowSteps> grouped) {
    RETURN_IF_ERROR(RemoveGhosts(grouped));
    std::vector<Pending> rows;
    rows.reserve(grouped.size());
    for (RowSteps& row : grouped) AddRow(std::move(row.steps), &rows);
    // The first round locks the rows and strips them of what was stale: the second takes the rest.
    for (int round = 0; round < 2 && !rows.empty(); ++round) {
      std::vector<Pending> refused;
      const auto over =
          std::ranges::stable_partition(rows, [](const Pending& row) { return !row.overwrite; });
      std::vector<Pending> overwriting(std::make_move_iterator(over.begin()),
                                       std::make_move_iterator(over.end()));
      rows.erase(over.begin(), over.end());
      RETURN_IF_ERROR(Round(std::move(rows), false, &refused));
      RETURN_IF_ERROR(Round(std::move(overwriting), true, &refused));
      rows = std::move(refused);
    }
    if (rows.empty()) return absl::OkStatus();
    return postgres::SqlError(
        "40001", fmt::format("rows of {} changed while they were written", table_.name.ToString()));
  }

 private:
  // Takes away what the source does not have, before all else: a row's version may be one that the
  // source never made, so it is forgotten, and whatever comes with it or later is news.
  absl::Status RemoveGhosts(std::vector<RowSteps>& grouped) {
    std::vector<Step> ghosts;
    for (RowSteps& row : grouped) {
      std::erase_if(row.steps, [&](const Step& step) {
        if (!step.change->absent || step.row->operation != Operation::kDelete) return false;
        if (LeftOut(step)) {
          Note(Outcome::kSuperseded, &outcomes_[step.event]);
        } else {
          ghosts.push_back(step);
        }
        return true;
      });
    }
    if (ghosts.empty()) return absl::OkStatus();
    const bool owned = !table_.aggregate.empty();
    RowArrays keys, arrays;
    for (const Step& step : ghosts) {
      keys.BeginRow();
      arrays.BeginRow();
      for (size_t i = 0; i < table_.key.size(); ++i) {
        keys.Add(step.At(i));
        arrays.Add(step.At(i));
      }
      arrays.Add(step.change->version);
      if (owned) arrays.Add(step.change->aggregate);
    }
    if (table_.hard_deletes()) {
      RETURN_IF_ERROR(Execute(plan_.forget, arrays, GroupAndGeneration()).status());
    }
    ASSIGN_OR_RETURN(const Result removed, Execute(plan_.remove, arrays));
    // What was not removed is not there, or newer, or another's.
    std::vector<Outcome> found(ghosts.size(), Outcome::kSuperseded);
    const auto at = [](const Result& result, int i) {
      return static_cast<size_t>(result.Int(i, 0)) - 1;
    };
    if (owned) {
      ASSIGN_OR_RETURN(const Result stored, Execute(plan_.stored, keys));
      for (int i = 0; i < stored.rows(); ++i) {
        const auto owner = stored.Optional(i, 3);
        const Step& ghost = ghosts[at(stored, i)];
        if (owner && *owner != ghost.change->aggregate) found[at(stored, i)] = Outcome::kForeign;
      }
    }
    for (int i = 0; i < removed.rows(); ++i) found[at(removed, i)] = Outcome::kApplied;
    for (size_t i = 0; i < ghosts.size(); ++i) Note(found[i], &outcomes_[ghosts[i].event]);
    return absl::OkStatus();
  }

  // Of a replay: what was there before changes nothing again.
  bool LeftOut(const Step& step) const {
    return !replays_over_ && Seen(context_.options, step.event);
  }
  bool Overwrites(const Step& step) const { return replays_over_ || step.change->overwrite; }
  // Whether it is no fork of the source that its very version is there already.
  bool MayBeThere(const Step& step) const {
    return step.change->snapshot || Covered(context_.options, step.event);
  }

  void AddRow(std::vector<Step> steps, std::vector<Pending>* rows) {
    std::erase_if(steps, [&](const Step& step) {
      if (!LeftOut(step)) return false;
      Note(Outcome::kSuperseded, &outcomes_[step.event]);
      return true;
    });
    if (steps.empty()) return;
    Pending pending;
    if (!table_.aggregate.empty()) {
      const auto first = std::ranges::min_element(steps, {}, &Step::event);
      pending.owner = &first->change->aggregate;
    }
    std::vector<Step> rising;
    for (const Step& step : steps) {
      if (pending.Foreign(step)) continue;
      if (rising.empty() || rising.back().change->version < step.change->version) {
        rising.push_back(step);
      }
    }
    pending.row = Fold(table_, rising);
    pending.overwrite = Overwrites(rising.front());
    pending.steps = std::move(steps);
    rows->push_back(std::move(pending));
  }

  // Writes the rows; adds those that were refused and still have something to say.
  absl::Status Round(std::vector<Pending> rows, bool overwrite, std::vector<Pending>* refused) {
    if (rows.empty()) return absl::OkStatus();
    // With hard deletes the version row comes first: only winners touch the table.
    const bool claims = table_.hard_deletes();
    ASSIGN_OR_RETURN(const Result written,
                     claims ? Claim(rows, overwrite) : Upsert(rows, overwrite));
    if (written.rows() != static_cast<int>(rows.size())) {
      ASSIGN_OR_RETURN(const Result stored, Stored(rows));
      TakeRefused(written, stored, &rows, refused);
    }
    for (const Pending& row : rows) Applied(row);
    return claims ? WriteClaimed(rows, overwrite) : absl::OkStatus();
  }

  // Leaves those rows that were written. `written`: keys. `stored`: position (from 1), key,
  // version, aggregate.
  void TakeRefused(const Result& written, const Result& stored, std::vector<Pending>* rows,
                   std::vector<Pending>* refused) {
    std::set<std::string, std::less<>> keys;
    for (int i = 0; i < written.rows(); ++i) keys.emplace(written.Text(i, 0));
    std::vector<Pending> won;
    std::vector<bool> known(rows->size());
    for (int i = 0; i < stored.rows(); ++i) {
      const size_t at = static_cast<size_t>(stored.Int(i, 0)) - 1;
      known[at] = true;
      if (keys.contains(stored.Text(i, 1))) {
        won.push_back(std::move((*rows)[at]));
      } else {
        Strip((*rows)[at], stored.Int(i, 2), stored.Optional(i, 3), refused);
      }
    }
    // Refused, and gone when looked for: somebody removed it by hand meanwhile. Once more.
    for (size_t at = 0; at < rows->size(); ++at) {
      if (!known[at]) refused->push_back(std::move((*rows)[at]));
    }
    *rows = std::move(won);
  }

  // Takes from a refused row what is stored already, and what is not its owner's.
  void Strip(const Pending& row, int64_t stored, const std::optional<std::string>& owner,
             std::vector<Pending>* refused) {
    std::vector<Step> rest;
    for (const Step& step : row.steps) {
      const int64_t version = step.change->version;
      if (!table_.aggregate.empty() && owner.has_value() && step.change->aggregate != *owner) {
        Note(Outcome::kForeign, &outcomes_[step.event]);
      } else if (version < stored) {
        Note(Outcome::kSuperseded, &outcomes_[step.event]);
      } else if (version == stored && !Overwrites(step)) {
        Note(MayBeThere(step) ? Outcome::kSuperseded : Outcome::kConflict, &outcomes_[step.event]);
      } else {
        rest.push_back(step);
      }
    }
    if (!rest.empty()) AddRow(std::move(rest), refused);
  }

  void Applied(const Pending& row) {
    const Step* folded = nullptr;  // the first of its version
    for (const Step& step : row.steps) {
      if (row.Foreign(step)) {
        Note(Outcome::kForeign, &outcomes_[step.event]);
      } else if (folded == nullptr || folded->change->version < step.change->version) {
        Note(Outcome::kApplied, &outcomes_[step.event]);
        folded = &step;
      } else {
        const bool fork = !folded->change->snapshot && !MayBeThere(step);
        Note(fork ? Outcome::kConflict : Outcome::kSuperseded, &outcomes_[step.event]);
      }
    }
  }

  absl::StatusOr<Result> Execute(const PlannedStatement& statement, const RowArrays& arrays,
                                 Params first = {}) {
    return context_.transaction.Execute(statement.Get(), arrays.After(std::move(first)));
  }

  // What the statements on row_versions begin with.
  Params GroupAndGeneration() const { return Params(context_.group, context_.options.generation); }

  absl::StatusOr<Result> Stored(const std::vector<Pending>& rows) {
    RowArrays arrays;
    for (const Pending& pending : rows) arrays.BeginRow(pending.row);
    if (!table_.hard_deletes()) return Execute(plan_.stored, arrays);
    return Execute(plan_.claimed, arrays, GroupAndGeneration());
  }

  absl::StatusOr<Result> Claim(const std::vector<Pending>& rows, bool overwrite) {
    RowArrays arrays;
    for (const Pending& pending : rows) {
      arrays.BeginRow(pending.row);
      arrays.Add(pending.row.version);
      arrays.Add(pending.row.first_version);
      arrays.Add(pending.row.deleted);
      if (pending.owner != nullptr) arrays.Add(*pending.owner);
    }
    return Execute(plan_.claim[overwrite], arrays, GroupAndGeneration());
  }

  absl::Status WriteClaimed(std::vector<Pending>& rows, bool overwrite) {
    const auto gone = std::ranges::stable_partition(
        rows, [](const Pending& pending) { return !pending.row.deleted; });
    const std::span<const Pending> live(rows.begin(), gone.begin());
    if (!live.empty()) RETURN_IF_ERROR(Upsert(live, overwrite).status());
    return gone.empty() ? absl::OkStatus() : Delete(gone);
  }

  absl::Status Delete(std::span<const Pending> rows) {
    RowArrays arrays;
    for (const Pending& pending : rows) {
      arrays.BeginRow(pending.row);
      arrays.Add(pending.row.version);
      if (pending.owner != nullptr) arrays.Add(*pending.owner);
    }
    return Execute(plan_.remove, arrays).status();
  }

  absl::StatusOr<Result> Upsert(std::span<const Pending> rows, bool overwrite) {
    const auto is_whole = [&](const Pending& p) { return p.row.Whole(plan_.has_default); };
    const bool whole = std::ranges::all_of(rows, is_whole);
    RowArrays arrays;
    std::string mask;
    for (const Pending& pending : rows) {
      const FoldedRow& row = pending.row;
      arrays.BeginRow(row);
      arrays.Add(row.version);
      for (const Value& value : row.values) arrays.Add(value);
      if (!table_.deleted_at.empty()) arrays.Add(row.deleted_at);
      if (pending.owner != nullptr) arrays.Add(*pending.owner);
      if (whole) continue;
      arrays.Add(row.first_version);
      if (is_whole(pending)) {
        arrays.AddNull();
        continue;
      }
      mask.assign(kMaskValues + row.values.size(), '0');
      if (row.fresh) mask[kMaskFresh] = '1';
      if (row.keep) mask[kMaskKeep] = '1';
      for (size_t i = 0; i < row.values.size(); ++i) {
        if (row.values[i].state != CellState::kAbsent) mask[kMaskValues + i] = '1';
      }
      arrays.Add(mask);
    }
    return Execute(whole ? plan_.write_whole[overwrite] : plan_.write_any[overwrite], arrays);
  }

  const WriteContext& context_;
  const Table& table_;
  const TablePlan& plan_;
  const bool replays_over_;
  std::vector<Outcome>& outcomes_;
};

}  // namespace

absl::Status WriteVersioned(const WriteContext& context, const std::vector<Step>& steps,
                            std::vector<Outcome>* outcomes) {
  return VersionedWriter(context, outcomes)
      .Write(GroupByRow(context.table, steps, context.plan.uuid_key));
}

absl::Status WriteCounting(const WriteContext& context, const std::vector<Step>& steps,
                           std::vector<Outcome>* outcomes) {
  const size_t cells = context.table.key.size() + context.table.values.size();
  RowArrays arrays;
  bool counted = false;
  for (const Step& step : steps) {
    const bool seen = Seen(context.options, step.event);  // never counted twice
    Note(seen ? Outcome::kSuperseded : Outcome::kApplied, &(*outcomes)[step.event]);
    if (seen) continue;
    counted = true;
    arrays.BeginRow();
    for (size_t i = 0; i < cells; ++i) arrays.Add(step.At(i));
  }
  if (!counted) return absl::OkStatus();
  return context.transaction.Execute(context.plan.count.Get(), arrays.After({})).status();
}

}  // namespace lockstep::projections
