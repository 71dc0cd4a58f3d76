#include "operations/rebuild_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "platform/status.h"

namespace lockstep::operations {
namespace {

constexpr Millis kLook{20};

// $1 = the group whose active slot has them, $2 = the group whose active slot lacks them.
constexpr std::string_view kOneSided = R"(
SELECT count(*), count(*) FILTER (WHERE i.received_at >= $4)
  FROM {state}.inbox i
 WHERE i.generation = (SELECT s.generation FROM {state}.slots s JOIN {state}.consumer_groups g
                         ON s.group_name = g.group_name AND s.slot = g.active_slot
                        WHERE g.group_name = $1)
   AND i.received_at >= $3
   AND NOT EXISTS (
     SELECT FROM {state}.inbox o
      WHERE o.generation = (SELECT s.generation FROM {state}.slots s JOIN {state}.consumer_groups g
                              ON s.group_name = g.group_name AND s.slot = g.active_slot
                             WHERE g.group_name = $2)
        AND o.event_id = i.event_id))";

constexpr std::string_view kTakeSlot = R"(
UPDATE {state}.slots SET group_name = $1 WHERE group_name = $2 AND slot = $3)";
constexpr std::string_view kTakeDeadLetters =
    "UPDATE {state}.dead_letters SET group_name = $1 WHERE group_name = $2";
constexpr std::string_view kTakeOffsets = R"(
UPDATE {state}.offsets o SET group_name = $1, epoch = g.epoch
  FROM {state}.consumer_groups g WHERE o.group_name = $2 AND g.group_name = $1)";
constexpr std::string_view kForgetInstances = "DELETE FROM {state}.instances WHERE group_name = $1";
constexpr std::string_view kForgetGroup =
    "DELETE FROM {state}.consumer_groups WHERE group_name = $1";

// One may be active at a time, so the other retires first.
constexpr std::string_view kRetire = R"(
UPDATE {state}.slots
   SET state = 'retired', tables = (SELECT jsonb_object_agg(t, t || $4) FROM unnest($3::text[]) t)
 WHERE group_name = $1 AND slot = $2)";
constexpr std::string_view kActivate = R"(
WITH active AS (UPDATE {state}.slots SET state = 'active', tables = '{}'
                 WHERE group_name = $1 AND slot = $2)
UPDATE {state}.consumer_groups SET active_slot = $2 WHERE group_name = $1)";

constexpr std::string_view kSought =
    "SELECT seek_state = 'done' FROM {state}.consumer_groups WHERE group_name = $1";

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

RebuildSwap::RebuildSwap(const offsets::StateSchema& schema, const ConsumerGroup& group,
                         ShadowTables tables, std::map<std::string, std::set<std::string>> ignored)
    : schema_(schema),
      rebuilds_(schema, group),
      live_(schema, group),
      shadow_(schema, rebuilds_.shadow_group()),
      resets_(schema, group),
      tables_(std::move(tables)),
      ignored_(std::move(ignored)) {}

absl::StatusOr<RebuildSwap::Missing> RebuildSwap::CountMissing(postgres::Connection& connection,
                                                               WallTime since,
                                                               WallTime began) const {
  ASSIGN_OR_RETURN(const auto row,
                   connection.Execute(schema_.Sql(kOneSided), rebuilds_.group().value(),
                                      rebuilds_.shadow_group().value(), since, began));
  return Missing{row.Int(0, 0), row.Int(0, 1)};
}

absl::StatusOr<int64_t> RebuildSwap::CountAhead(postgres::Connection& connection,
                                                WallTime since) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  return CountOneSided(transaction, rebuilds_.shadow_group().value(), rebuilds_.group().value(),
                       since);
}

absl::StatusOr<int64_t> RebuildSwap::CountOneSided(postgres::Transaction& transaction,
                                                   std::string_view in, std::string_view not_in,
                                                   WallTime since) const {
  ASSIGN_OR_RETURN(const auto row,
                   transaction.Execute(schema_.Sql(kOneSided), in, not_in, since, since));
  return row.Int(0, 0);
}

// The live slot stands still meanwhile: nothing is added to what the shadow must reach.
absl::StatusOr<int64_t> RebuildSwap::AwaitShadow(postgres::Transaction& transaction,
                                                 const Request& request) const {
  const SteadyTime give_up = Clock::System().Steady() + request.pause;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t missing,
                     CountOneSided(transaction, rebuilds_.group().value(),
                                   rebuilds_.shadow_group().value(), request.check_since));
    if (missing == 0 || Clock::System().Steady() >= give_up) return missing;
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status RebuildSwap::Compare(postgres::Transaction& transaction,
                                  const offsets::RebuildRow& row, SwapResult& result) const {
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
  if (!row || row->state != offsets::RebuildState::kFilling) {
    return FailedPrecondition("the rebuild has gone on without this command");
  }
  ASSIGN_OR_RETURN(const auto sought,
                   transaction.Execute(schema_.Sql(kSought), rebuilds_.group().value()));
  if (!sought.Bool(0, 0)) {
    return FailedPrecondition(
        "a reset of the group is under way; resume the rebuild once its Seek is done");
  }
  ASSIGN_OR_RETURN(result.missing, AwaitShadow(transaction, request));
  if (result.missing > 0) return result;
  RETURN_IF_ERROR(Reached(request.at, "swap.locked"));
  if (request.stop_shadow) request.stop_shadow();
  RETURN_IF_ERROR(shadow_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(result.ahead, CountOneSided(transaction, rebuilds_.shadow_group().value(),
                                               rebuilds_.group().value(), request.check_since));
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
      tables_.Swap(transaction, offsets::RebuildRow::Suffix(row->old_slot), row->shadow_suffix()));
  RETURN_IF_ERROR(Reached(request.at, "swap.renamed"));
  RETURN_IF_ERROR(HandOver(transaction, *row));
  RETURN_IF_ERROR(Reached(request.at, "swap.flipped"));
  RETURN_IF_ERROR(transaction.Commit());
  result.swapped = true;
  return result;
}

absl::Status RebuildSwap::Activate(postgres::Transaction& transaction,
                                   const offsets::RebuildRow& row, int active, int retired) const {
  using postgres::Params;
  postgres::Array tables;
  for (const std::string& table : row.tables) tables.Add(table);
  const std::string& group = rebuilds_.group().value();
  RETURN_IF_ERROR(transaction
                      .Execute(schema_.Sql(kRetire), group, retired, tables,
                               offsets::RebuildRow::Suffix(retired))
                      .status());
  return transaction.Execute(schema_.Sql(kActivate), group, active).status();
}

absl::Status RebuildSwap::HandOver(postgres::Transaction& transaction,
                                   const offsets::RebuildRow& row) const {
  using postgres::Params;
  const std::string& group = rebuilds_.group().value();
  const std::string shadow = rebuilds_.shadow_group().value();
  RETURN_IF_ERROR(rebuilds_.SetSwapped(transaction));
  RETURN_IF_ERROR(
      transaction.Execute(schema_.Sql(kTakeSlot), group, shadow, row.new_slot).status());
  RETURN_IF_ERROR(Activate(transaction, row, row.new_slot, row.old_slot));
  RETURN_IF_ERROR(transaction.Execute(schema_.Sql(kTakeDeadLetters), group, shadow).status());
  offsets::ResetRequest reset{
      .operator_name = row.operator_name, .reason = row.reason, .action = "rebuild.swapped"};
  if (row.seek.kind == offsets::SeekKind::kTime) reset.skip_before = row.seek.time;
  RETURN_IF_ERROR(resets_.Write(transaction, reset).status());
  RETURN_IF_ERROR(transaction.Execute(schema_.Sql(kTakeOffsets), group, shadow).status());
  RETURN_IF_ERROR(transaction.Execute(schema_.Sql(kForgetInstances), shadow).status());
  return transaction.Execute(schema_.Sql(kForgetGroup), shadow).status();
}

absl::Status RebuildSwap::Back(postgres::Connection& connection, const std::string& operator_name,
                               const std::string& reason, Millis lock_try,
                               const RebuildStep& at) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(SetTimeouts(transaction, lock_try));
  RETURN_IF_ERROR(live_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const auto row, rebuilds_.Lock(transaction));
  if (!row || row->state != offsets::RebuildState::kSwapped) {
    return FailedPrecondition("the rebuild has gone on without this command");
  }
  RETURN_IF_ERROR(
      tables_.Swap(transaction, row->shadow_suffix(), offsets::RebuildRow::Suffix(row->old_slot)));
  RETURN_IF_ERROR(Activate(transaction, *row, row->old_slot, row->new_slot));
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
