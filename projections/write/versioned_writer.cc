#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/write/row_arrays.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {
namespace {

using postgres::Params;
using postgres::Result;

// A row on its way: the steps that are still to be settled, in version order, and what they fold
// to. Of steps with one version only the first is folded: the others are a fork of it. Nor are
// steps folded of another aggregate than the first that came, where rows have an owner.
struct Pending {
  std::vector<Step> steps;
  FoldedRow row;
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
        // The stored version itself is accepted on tables that hold snapshots only.
        overwrite_(context.options.overwrite && !context.table.merges),
        outcomes_(*outcomes) {}

  absl::Status Write(std::vector<Chain> chains) {
    std::vector<Pending> rows;
    rows.reserve(chains.size());
    for (Chain& chain : chains) AddRow(std::move(chain.steps), &rows);
    if (rows.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::vector<Pending> refused, Round(rows));
    if (refused.empty()) return absl::OkStatus();
    // Locked by now, and stripped of what was stale: the second round takes the rest.
    ASSIGN_OR_RETURN(refused, Round(refused));
    if (!refused.empty()) {
      return postgres::SqlError("40001", fmt::format("rows of {} changed while they were written",
                                                     table_.name.ToString()));
    }
    return absl::OkStatus();
  }

 private:
  void AddRow(std::vector<Step> steps, std::vector<Pending>* rows) {
    std::erase_if(steps, [&](const Step& step) {
      const auto& seen = context_.options.seen;
      if (overwrite_ || seen.empty() || !seen[step.event]) return false;
      Note(Outcome::kSuperseded, &outcomes_[step.event]);
      return true;
    });
    if (steps.empty()) return;
    Pending pending;
    if (!table_.aggregate.empty()) {
      const auto first =
          std::min_element(steps.begin(), steps.end(),
                           [](const Step& a, const Step& b) { return a.event < b.event; });
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
    pending.steps = std::move(steps);
    rows->push_back(std::move(pending));
  }

  // Writes the rows; answers those that were refused and still have something to say.
  absl::StatusOr<std::vector<Pending>> Round(const std::vector<Pending>& rows) {
    if (!table_.hard_deletes()) {
      ASSIGN_OR_RETURN(const Result written, Upsert(rows));
      if (written.rows() == static_cast<int>(rows.size())) {
        for (const Pending& row : rows) Applied(row);
        return std::vector<Pending>();
      }
      ASSIGN_OR_RETURN(const Result stored,
                       context_.transaction.Execute(plan_.stored.Get(), Keys(rows, false)));
      return Sort(rows, written, stored).refused;
    }
    // The version row first: only winners touch the table.
    ASSIGN_OR_RETURN(const Result claimed, Claim(rows));
    if (claimed.rows() == static_cast<int>(rows.size())) {
      RETURN_IF_ERROR(WriteWinners(rows));
      return std::vector<Pending>();
    }
    ASSIGN_OR_RETURN(const Result stored,
                     context_.transaction.Execute(plan_.claimed.Get(), Keys(rows, true)));
    Sorted sorted = Sort(rows, claimed, stored);
    RETURN_IF_ERROR(WriteWinners(sorted.won));
    return std::move(sorted.refused);
  }

  struct Sorted {
    std::vector<Pending> won;
    std::vector<Pending> refused;
  };
  // `written`: keys. `stored`: position (from 1), key, version, aggregate.
  Sorted Sort(const std::vector<Pending>& rows, const Result& written, const Result& stored) {
    std::set<std::string, std::less<>> won;
    for (int i = 0; i < written.rows(); ++i) won.emplace(written.Text(i, 0));
    Sorted sorted;
    std::vector<bool> known(rows.size());
    for (int i = 0; i < stored.rows(); ++i) {
      const size_t at = static_cast<size_t>(stored.Int(i, 0)) - 1;
      known[at] = true;
      if (won.contains(stored.Text(i, 1))) {
        if (!table_.hard_deletes()) Applied(rows[at]);
        sorted.won.push_back(rows[at]);
      } else {
        Strip(rows[at], stored.Int(i, 2), stored.Optional(i, 3), &sorted.refused);
      }
    }
    // Refused, and gone when looked for: somebody removed it by hand meanwhile. Once more.
    for (size_t at = 0; at < rows.size(); ++at) {
      if (!known[at]) sorted.refused.push_back(rows[at]);
    }
    return sorted;
  }

  // Takes from a refused row what the stored version settles, and what is not its owner's.
  void Strip(const Pending& row, int64_t stored, const std::optional<std::string>& owner,
             std::vector<Pending>* refused) {
    std::vector<Step> rest;
    for (const Step& step : row.steps) {
      const int64_t version = step.change->version;
      if (!table_.aggregate.empty() && owner.has_value() && step.change->aggregate != *owner) {
        Note(Outcome::kForeign, &outcomes_[step.event]);
      } else if (version < stored) {
        Note(Outcome::kSuperseded, &outcomes_[step.event]);
      } else if (version == stored && !overwrite_) {
        Note(Outcome::kConflict, &outcomes_[step.event]);
      } else {
        rest.push_back(step);
      }
    }
    if (!rest.empty()) AddRow(std::move(rest), refused);
  }

  void Applied(const Pending& row) {
    const Step* before = nullptr;
    for (const Step& step : row.steps) {
      if (row.Foreign(step)) {
        Note(Outcome::kForeign, &outcomes_[step.event]);
        continue;
      }
      const bool fork = before != nullptr && before->change->version == step.change->version;
      Note(fork ? Outcome::kConflict : Outcome::kApplied, &outcomes_[step.event]);
      before = &step;
    }
  }

  Params Keys(const std::vector<Pending>& rows, bool versions_table) const {
    RowArrays arrays(table_.key.size());
    for (const Pending& pending : rows) arrays.AddKey(pending.row);
    Params params;
    if (versions_table) params.Add(context_.group).Add(context_.options.generation);
    arrays.AppendTo(&params);
    return params;
  }

  absl::StatusOr<Result> Claim(const std::vector<Pending>& rows) {
    const size_t keys = table_.key.size();
    const bool owned = !table_.aggregate.empty();
    RowArrays arrays(keys + (owned ? 4 : 3));
    for (const Pending& pending : rows) {
      arrays.AddKey(pending.row);
      arrays[keys].Add(pending.row.version);
      arrays[keys + 1].Add(pending.row.first_version);
      arrays[keys + 2].Add(pending.row.deleted);
      if (owned) arrays[keys + 3].Add(*pending.owner);
    }
    Params params;
    params.Add(context_.group).Add(context_.options.generation);
    arrays.AppendTo(&params);
    return context_.transaction.Execute(plan_.claim[overwrite_].Get(), params);
  }

  absl::Status WriteWinners(const std::vector<Pending>& rows) {
    std::vector<Pending> live;
    std::vector<const Pending*> gone;
    for (const Pending& row : rows) {
      Applied(row);
      if (row.row.deleted) {
        gone.push_back(&row);
      } else {
        live.push_back(row);
      }
    }
    if (!live.empty()) RETURN_IF_ERROR(Upsert(live).status());
    if (gone.empty()) return absl::OkStatus();
    const size_t keys = table_.key.size();
    RowArrays arrays(keys + 1);
    for (const Pending* row : gone) {
      arrays.AddKey(row->row);
      arrays[keys].Add(row->row.version);
    }
    Params params;
    arrays.AppendTo(&params);
    return context_.transaction.Execute(plan_.delete_rows.Get(), params).status();
  }

  absl::StatusOr<Result> Upsert(const std::vector<Pending>& rows) {
    const auto is_whole = [&](const Pending& p) { return p.row.Whole(plan_.has_default); };
    const bool whole = std::all_of(rows.begin(), rows.end(), is_whole);
    const size_t keys = table_.key.size();
    const size_t values = table_.values.size();
    const bool soft = !table_.deleted_at.empty();
    const bool owned = !table_.aggregate.empty();
    const size_t base = keys + 1 + values + (soft ? 1 : 0) + (owned ? 1 : 0);
    RowArrays arrays(whole ? base : base + 2);
    std::string mask;
    for (const Pending& pending : rows) {
      const FoldedRow& row = pending.row;
      arrays.AddKey(row);
      arrays[keys].Add(row.version);
      for (size_t i = 0; i < values; ++i) RowArrays::Add(row.values[i], &arrays[keys + 1 + i]);
      if (soft) RowArrays::Add(row.deleted_at, &arrays[keys + 1 + values]);
      if (owned) arrays[base - 1].Add(*pending.owner);
      if (whole) continue;
      arrays[base].Add(row.first_version);
      if (is_whole(pending)) {
        arrays[base + 1].AddNull();
        continue;
      }
      mask.assign(kMaskValues + values, '0');
      if (row.fresh) mask[kMaskFresh] = '1';
      if (row.keep) mask[kMaskKeep] = '1';
      for (size_t i = 0; i < values; ++i) {
        if (row.values[i].state != CellState::kAbsent) mask[kMaskValues + i] = '1';
      }
      arrays[base + 1].Add(mask);
    }
    Params params;
    arrays.AppendTo(&params);
    return context_.transaction.Execute(
        whole ? plan_.write_whole[overwrite_].Get() : plan_.write_any[overwrite_].Get(), params);
  }

  const WriteContext& context_;
  const Table& table_;
  const TablePlan& plan_;
  const bool overwrite_;
  std::vector<Outcome>& outcomes_;
};

}  // namespace

absl::Status WriteVersioned(const WriteContext& context, const std::vector<Step>& steps,
                            std::vector<Outcome>* outcomes) {
  return VersionedWriter(context, outcomes)
      .Write(MakeChains(context.table, steps, context.plan.uuid_key));
}

}  // namespace lockstep::projections
