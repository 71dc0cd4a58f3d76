#include "operations/rebuild_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "platform/status.h"
#include "state/instances.h"

namespace lockstep::operations {
namespace {

constexpr Millis kLook{20};

absl::Status Reached(const RebuildStep& at, std::string_view step) {
  return at ? at(step) : absl::OkStatus();
}

absl::Status SetTimeouts(postgres::Transaction& transaction, Millis lock_try) {
  return transaction
      .Execute(fmt::format("SELECT set_config('lock_timeout', '{}', true), "
                           "set_config('statement_timeout', '0', true)",
                           lock_try.count()))
      .status();
}

}  // namespace

bool SwapResult::differs() const {
  return std::any_of(tables.begin(), tables.end(), [](const auto& t) { return !t.equal(); });
}

RebuildSwap::RebuildSwap(const state::Schema& schema, const ConsumerGroup& group,
                         ShadowTables tables, std::map<std::string, std::set<std::string>> ignored)
    : schema_(schema),
      rebuilds_(schema, group),
      inbox_(schema),
      slots_(schema, group),
      live_(schema, group),
      shadow_(schema, rebuilds_.shadow_group()),
      resets_(schema, group),
      tables_(std::move(tables)),
      ignored_(std::move(ignored)) {}

absl::StatusOr<state::Inbox::Missing> RebuildSwap::CountMissing(postgres::Connection& connection,
                                                                WallTime since,
                                                                WallTime began) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  return inbox_.CountMissing(transaction, rebuilds_.group(), rebuilds_.shadow_group(), since,
                             began);
}

absl::StatusOr<int64_t> RebuildSwap::CountAhead(postgres::Connection& connection,
                                                WallTime since) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  return CountOneSided(transaction, rebuilds_.shadow_group(), rebuilds_.group(), since);
}

absl::StatusOr<int64_t> RebuildSwap::CountOneSided(postgres::Transaction& transaction,
                                                   const ConsumerGroup& in,
                                                   const ConsumerGroup& not_in,
                                                   WallTime since) const {
  ASSIGN_OR_RETURN(const auto missing, inbox_.CountMissing(transaction, in, not_in, since, since));
  return missing.all;
}

// The live slot stands still meanwhile: nothing is added to what the shadow must reach.
absl::StatusOr<int64_t> RebuildSwap::AwaitShadow(postgres::Transaction& transaction,
                                                 const Request& request) const {
  const SteadyTime give_up = Clock::System().Steady() + request.pause;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t missing,
                     CountOneSided(transaction, rebuilds_.group(), rebuilds_.shadow_group(),
                                   request.check_since));
    if (missing == 0 || Clock::System().Steady() >= give_up) return missing;
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status RebuildSwap::Compare(postgres::Transaction& transaction, const state::RebuildRow& row,
                                  SwapResult& result) const {
  for (const std::string& table : tables_.names()) {
    const auto ignored = ignored_.find(table);
    ASSIGN_OR_RETURN(
        auto comparison,
        CompareTables(transaction, table, table + row.shadow_suffix(),
                      ignored == ignored_.end() ? std::set<std::string>() : ignored->second));
    result.tables.push_back(std::move(comparison));
  }
  return absl::OkStatus();
}

absl::StatusOr<SwapResult> RebuildSwap::Try(postgres::Connection& connection,
                                            const Request& request) const {
  SwapResult result;
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(SetTimeouts(transaction, request.lock_try));
  RETURN_IF_ERROR(live_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const auto row, rebuilds_.Lock(transaction));
  if (!row || row->state != state::RebuildState::kFilling) {
    return FailedPrecondition("the rebuild has gone on without this command");
  }
  ASSIGN_OR_RETURN(const state::GroupEpoch now, live_.Load(transaction));
  if (!now.seek_done) {
    return FailedPrecondition(
        "a reset of the group is under way; resume the rebuild once its Seek is done");
  }
  ASSIGN_OR_RETURN(result.missing, AwaitShadow(transaction, request));
  if (result.missing > 0) return result;
  RETURN_IF_ERROR(Reached(request.at, "swap.locked"));
  if (request.stop_shadow) request.stop_shadow();
  RETURN_IF_ERROR(shadow_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(result.ahead, CountOneSided(transaction, rebuilds_.shadow_group(),
                                               rebuilds_.group(), request.check_since));
  if (result.ahead > 0 && request.level) return result;
  ASSIGN_OR_RETURN(const auto changes, tables_.Changes(transaction, row->shadow_suffix()));
  if (!changes.empty()) {
    return FailedPrecondition(
        "the tables have changed since the rebuild began; abort it and begin again:\n  {}",
        fmt::join(changes, "\n  "));
  }
  RETURN_IF_ERROR(Compare(transaction, *row, result));
  RETURN_IF_ERROR(Reached(request.at, "swap.verified"));
  if (result.differs() && !request.despite_differences) return result;
  RETURN_IF_ERROR(
      tables_.Swap(transaction, state::RebuildRow::Suffix(row->old_slot), row->shadow_suffix()));
  RETURN_IF_ERROR(Reached(request.at, "swap.renamed"));
  RETURN_IF_ERROR(HandOver(transaction, *row));
  RETURN_IF_ERROR(Reached(request.at, "swap.flipped"));
  RETURN_IF_ERROR(transaction.Commit());
  result.swapped = true;
  return result;
}

absl::Status RebuildSwap::HandOver(postgres::Transaction& transaction,
                                   const state::RebuildRow& row) const {
  const ConsumerGroup& group = rebuilds_.group();
  const ConsumerGroup shadow = rebuilds_.shadow_group();
  RETURN_IF_ERROR(rebuilds_.SetSwapped(transaction));
  RETURN_IF_ERROR(slots_.Take(transaction, shadow, row.new_slot));
  RETURN_IF_ERROR(slots_.Activate(transaction, row.new_slot, row.old_slot, row.tables,
                                  state::RebuildRow::Suffix(row.old_slot)));
  RETURN_IF_ERROR(state::DeadLetters(schema_, group).Take(transaction, shadow));
  RETURN_IF_ERROR(resets_
                      .Write(transaction, {.skip_before = row.seek.time,
                                           .operator_name = row.operator_name,
                                           .reason = row.reason,
                                           .action = "rebuild.swapped"})
                      .status());
  RETURN_IF_ERROR(state::Offsets(schema_).Take(transaction, group, shadow));
  RETURN_IF_ERROR(state::Instances(schema_, shadow).ForgetAll(transaction));
  return shadow_.Forget(transaction);
}

absl::Status RebuildSwap::Back(postgres::Connection& connection, const std::string& operator_name,
                               const std::string& reason, Millis lock_try,
                               const RebuildStep& at) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(SetTimeouts(transaction, lock_try));
  RETURN_IF_ERROR(live_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const auto row, rebuilds_.Lock(transaction));
  if (!row || row->state != state::RebuildState::kSwapped) {
    return FailedPrecondition("the rebuild has gone on without this command");
  }
  RETURN_IF_ERROR(
      tables_.Swap(transaction, row->shadow_suffix(), state::RebuildRow::Suffix(row->old_slot)));
  RETURN_IF_ERROR(slots_.Activate(transaction, row->old_slot, row->new_slot, row->tables,
                                  row->shadow_suffix()));
  RETURN_IF_ERROR(resets_
                      .Write(transaction, {.skip_before = row->old_skip_before,
                                           .operator_name = operator_name,
                                           .reason = reason,
                                           .action = "rebuild.rolled_back"})
                      .status());
  RETURN_IF_ERROR(rebuilds_.SetDiscarding(transaction, row->new_slot));
  RETURN_IF_ERROR(Reached(at, "rollback.flipped"));
  return transaction.Commit();
}

}  // namespace lockstep::operations
