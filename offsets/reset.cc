#include "offsets/reset.h"

#include <fmt/format.h>

#include "offsets/lock_retry.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "state/events/dead_letters.h"
#include "state/events/key_states.h"
#include "state/groups/slots.h"
#include "state/positions/offsets.h"

namespace lockstep::offsets {

std::string_view Name(ResetMode mode) {
  constexpr std::string_view kNames[] = {"keep", "empty", "overwrite"};  // in the enum's order
  return kNames[static_cast<size_t>(mode)];
}

absl::StatusOr<ResetDone> Resets::Run(
    postgres::Connection& connection, const ResetRequest& request,
    const std::function<void(const std::vector<std::string>& holders)>& on_wait) const {
  ResetDone done;
  const auto change = [&](postgres::Transaction& transaction) -> absl::Status {
    RETURN_IF_ERROR(epochs_.LockExclusively(transaction));
    ASSIGN_OR_RETURN(done, Write(transaction, request));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(WithLockRetry(
      connection, schema_, group_,
      {.tables = request.tables, .each = request.lock_try, .on_wait = on_wait}, change));
  return done;
}

absl::StatusOr<ResetDone> Resets::Write(postgres::Transaction& transaction,
                                        const ResetRequest& request) const {
  ASSIGN_OR_RETURN(const state::GroupEpoch before, epochs_.Load(transaction));
  ResetDone done{.old_epoch = before.epoch, .generation = before.generation};
  const state::SeekTarget& seek = request.seek;
  state::Offsets offsets(schema_);
  ASSIGN_OR_RETURN(const auto committed, offsets.Newest(transaction, group_));
  ASSIGN_OR_RETURN(
      done.epoch,
      epochs_.BeginNew(transaction, {.seek = seek,
                                     .fence = request.fence,
                                     .takeover = request.takeover,
                                     .skip_before = seek.time ? seek.time : request.skip_before,
                                     .overwrite = request.mode == ResetMode::kOverwrite,
                                     .overwrite_until = request.overwrite_until,
                                     .committed = committed,
                                     .by = request.operator_name}));
  if (request.mode == ResetMode::kEmpty) {
    RETURN_IF_ERROR(Empty(transaction, request, before.generation));
    ASSIGN_OR_RETURN(
        done.generation,
        state::Slots(schema_, group_).NewGeneration(transaction, before.slot, before.generation));
  } else if (seek.time) {
    ASSIGN_OR_RETURN(const bool forward, offsets.IsForward(transaction, group_, *seek.time));
    if (forward) {
      RETURN_IF_ERROR(state::KeyStates(schema_).SkipGaps(transaction, before.generation));
    }
  }
  state::ResetRecord record{.group = group_,
                            .subscription = before.subscription,
                            .epoch = done.epoch,
                            .operator_name = request.operator_name,
                            .reason = request.reason,
                            .action = request.action,
                            .mode = std::string(Name(request.mode)),
                            .snapshot = seek.snapshot.value_or("")};
  if (seek.time) record.to = state::Position{*seek.time, MessageId()};
  RETURN_IF_ERROR(offsets.Reset(&transaction, record));
  return done;
}

absl::Status Resets::Empty(postgres::Transaction& transaction, const ResetRequest& request,
                           int old_generation) const {
  for (const std::string& table : request.tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    RETURN_IF_ERROR(transaction.Run(fmt::format("TRUNCATE {}", name.Quoted())));
  }
  return state::DeadLetters(schema_, group_)
      .DiscardAll(transaction, old_generation, request.operator_name,
                  "a reset emptied the read model");
}

}  // namespace lockstep::offsets
