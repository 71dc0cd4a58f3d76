// A rebuild from backfills: what came before the shadow's subscription is sent once more, by the
// publisher of the source, so no history of the topic is needed. Their ids stand in the rebuild's
// row before they are made: whoever goes on finds the very same.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "offsets/seek_target.h"
#include "operations/backfill_fit.h"
#include "operations/rebuild.h"
#include "platform/status.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/source_check.h"

namespace lockstep::operations {
namespace {

using publisher::BackfillRecord;
using publisher::BackfillStore;
using publisher::Declaration;
using state::RebuildRow;

// Pub/Sub's clock may be behind ours. What was published before the new subscription was made does
// not come to it, so a time that is too early costs nothing.
constexpr std::chrono::minutes kClockMargin{1};
// What the live slot has got since may still be on its way to the shadow.
constexpr Millis kOnItsWay{2'000};

}  // namespace

absl::Status Rebuild::PlanBackfills(RebuildPlan& plan, const projections::GroupPlan& group) {
  RETURN_IF_ERROR(NeedSource(plan.row));
  RETURN_IF_ERROR(CheckFill(parts_.backfills, group));
  BackfillStore store(*parts_.source);
  for (const Declaration& declaration : parts_.backfills) {
    ASSIGN_OR_RETURN(const auto open,
                     store.List(declaration.outbox.Quoted(), /*at_most=*/1'000, /*open=*/true));
    for (const BackfillRecord& record : open) {
      if (record.repair || record.name != declaration.name) continue;
      return FailedPrecondition(
          "backfill {0} is {1} already, and began before the new tables could hear of it: let it "
          "end, or end it with `lockstepctl backfill cancel {2}` at the source",
          record.name, record.state, record.id);
    }
    ASSIGN_OR_RETURN(const auto report,
                     publisher::CheckSource(*parts_.source, declaration, /*scan=*/true));
    if (!report.problems.empty()) {
      return FailedPrecondition("backfill {} can't start: {}", declaration.name,
                                fmt::join(report.problems, "; "));
    }
    for (const std::string& warning : report.warnings) {
      listener_.note(fmt::format("backfill {}: {}", declaration.name, warning));
    }
    plan.events += report.rows;
    ASSIGN_OR_RETURN(const auto id, connection_.Execute("SELECT gen_random_uuid() AS id"));
    if (!plan.row.backfills.emplace(declaration.name, id[0].String("id")).second) {
      return InvalidArgument("backfill {} is named twice", declaration.name);
    }
  }
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(connection_));
  plan.row.seek = state::SeekTarget::To(now - kClockMargin);
  return absl::OkStatus();
}

absl::Status Rebuild::NeedSource(const RebuildRow& row) const {
  if (parts_.source != nullptr) return absl::OkStatus();
  std::vector<std::string> names;
  for (const auto& [name, id] : row.backfills) names.push_back(fmt::format("{} ({})", name, id));
  return FailedPrecondition(
      "the rebuild is filled by a backfill{}{}: name the source's database with --source",
      names.empty() ? "" : ", ", fmt::join(names, ", "));
}

absl::Status Rebuild::StartBackfills(const RebuildRow& row) {
  RETURN_IF_ERROR(NeedSource(row));
  BackfillStore store(*parts_.source);
  for (const auto& [name, id] : row.backfills) {
    const auto found = store.Find(id);
    if (found.ok()) continue;
    if (!absl::IsNotFound(found.status())) return found.status();
    const auto declared = std::ranges::find(parts_.backfills, name, &Declaration::name);
    if (declared == parts_.backfills.end()) {
      return FailedPrecondition(
          "backfill {} was not started yet: name its file with --declaration, or the right "
          "database with --source",
          name);
    }
    RETURN_IF_ERROR(store
                        .Create(*declared, /*expected=*/0, row.operator_name,
                                fmt::format("rebuild of {}: {}", group_.value(), row.reason), id)
                        .status());
    listener_.note(fmt::format("backfill {} is {}", name, id));
    RETURN_IF_ERROR(Reached("backfilling"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<BackfillRecord>>> Rebuild::BackfillsDone(
    const RebuildRow& row) {
  BackfillStore store(*parts_.source);
  std::vector<BackfillRecord> done;
  bool all = true, leased = true;
  backfill_rows_ = 0;
  for (const auto& [name, id] : row.backfills) {
    ASSIGN_OR_RETURN(const BackfillRecord record, store.Find(id));
    if (record.state == "done") {
      backfill_rows_ += record.rows_done;
      done.push_back(record);
      continue;
    }
    if (record.ended()) {
      return FailedPrecondition(
          "backfill {} ({}) is {}; `lockstepctl rebuild abort {}` undoes the rebuild", name, id,
          record.state, group_.value());
    }
    if (record.state != "running") {
      return FailedPrecondition(
          "backfill {} is {}{}{}; `lockstepctl backfill resume {}` at the source lets it go on, "
          "then `lockstepctl rebuild resume {}` the rebuild",
          name, record.state, record.last_error.empty() ? "" : ": ", record.last_error, id,
          group_.value());
    }
    backfill_rows_ += std::max(record.rows_done, record.rows_expected);
    leased = leased && record.leased;
    all = false;
  }
  if (idle_.For(leased, Clock::System().Steady()) > parts_.patience) {
    idle_ = {};
    listener_.note("no publisher of the source works on the backfill; is one running?");
  }
  if (!all) return std::nullopt;
  return done;
}

// The tables can be compared once the shadow has all snapshots, and what came to both of late.
// Older events of the live slot that the shadow lacks were published before its subscription was
// made: what they did is in the backfill.
absl::StatusOr<bool> Rebuild::CaughtUpFromBackfills(const RebuildRow& row,
                                                    bool despite_differences) {
  ASSIGN_OR_RETURN(const auto done, BackfillsDone(row));
  if (!done) return false;
  ASSIGN_OR_RETURN(const auto look, arrival_.At(connection_, *done));
  const bool come = look != std::exchange(snapshots_, look);
  if (lacks_.For(look.all() || come, Clock::System().Steady()) < parts_.patience && !look.all()) {
    return false;
  }
  if (!look.all() && !despite_differences) {
    return FailedPrecondition(
        "the backfill has sent {} rows, and snapshots of {} have come to the new tables, without "
        "{} of the last that were sent: is its topic one that the group subscribes to "
        "(`subscription`, `snapshots`)? `lockstepctl rebuild resume {}` waits on; with "
        "--accept-differences it goes on without the rest",
        look.sent, look.taken, look.lacking, group_.value());
  }
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(connection_));
  const WallTime since = now - parts_.patience;
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const auto missing,
                   inbox_.CountMissing(transaction, group_, shadow_group_, since, now - kOnItsWay));
  if (missing.all > missing.recent) return false;
  checked_until_ = since;
  return true;
}

absl::Status Rebuild::CancelBackfills(const RebuildRow& row) {
  RETURN_IF_ERROR(NeedSource(row));
  BackfillStore store(*parts_.source);
  for (const auto& [name, id] : row.backfills) {
    const auto found = store.Find(id);
    if (absl::IsNotFound(found.status())) continue;  // it never came so far
    RETURN_IF_ERROR(found.status());
    if (found->ended()) continue;
    const auto cancelled =
        store.Apply(BackfillStore::Change::kCancel, id, row.operator_name,
                    fmt::format("the rebuild of {} was aborted", group_.value()));
    if (cancelled.ok()) continue;
    ASSIGN_OR_RETURN(const BackfillRecord now, store.Find(id));
    if (!now.ended()) return cancelled.status();
  }
  return Reached("cancelled");
}

}  // namespace lockstep::operations
