#include "offsets/reset.h"

#include <fmt/format.h>

#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::offsets {
namespace {

constexpr std::string_view kLockNotAvailable = "55P03";

constexpr std::string_view kHolders = R"(
WITH key AS (SELECT hashtextextended('lockstep.epoch.' || $2 || '.' || $1, 0) AS k)
SELECT DISTINCT a.pid, a.application_name, coalesce(a.state, 'unknown') AS state,
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0) AS seconds
  FROM pg_locks l
  JOIN pg_stat_activity a USING (pid), key
 WHERE l.granted AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND ((l.locktype = 'advisory' AND l.objsubid = 1
         AND l.classid::bigint = (key.k >> 32) & 4294967295
         AND l.objid::bigint = key.k & 4294967295)
        OR (l.locktype = 'relation'
            AND l.relation = ANY (SELECT to_regclass(t) FROM unnest($3::text[]) AS t)))
 ORDER BY a.pid)";

}  // namespace

std::string_view Name(ResetMode mode) {
  switch (mode) {
    case ResetMode::kEmpty:
      return "empty";
    case ResetMode::kOverwrite:
      return "overwrite";
    case ResetMode::kKeep:
      break;
  }
  return "keep";
}

Resets::Resets(const state::Schema& schema, ConsumerGroup group)
    : schema_(schema),
      group_(std::move(group)),
      epochs_(schema, group_),
      slots_(schema, group_),
      key_states_(schema),
      dead_letters_(schema, group_),
      offsets_(schema) {}

absl::StatusOr<ResetDone> Resets::Run(postgres::Connection& connection, const ResetRequest& request,
                                      const OnWait& on_wait) const {
  const SteadyTime give_up = Clock::System().Steady() + request.lock_give_up;
  while (true) {
    auto done = Try(connection, request);
    if (done.ok() || postgres::SqlState(done.status()) != kLockNotAvailable) return done;
    ASSIGN_OR_RETURN(const auto holders, Holders(connection, request.tables));
    if (on_wait) on_wait(holders);
    if (Clock::System().Steady() >= give_up) {
      return absl::DeadlineExceededError(
          fmt::format("nothing was changed: the lock of group '{}' is held by {}", group_.value(),
                      holders.empty() ? "somebody who has just gone; try again"
                                      : fmt::format("{}", fmt::join(holders, "; "))));
    }
  }
}

absl::StatusOr<ResetDone> Resets::Try(postgres::Connection& connection,
                                      const ResetRequest& request) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(
      transaction.Execute(fmt::format("SET LOCAL lock_timeout = {}", request.lock_try.count()))
          .status());
  RETURN_IF_ERROR(epochs_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const ResetDone done, Write(transaction, request));
  RETURN_IF_ERROR(transaction.Commit());
  return done;
}

absl::StatusOr<ResetDone> Resets::Write(postgres::Transaction& transaction,
                                        const ResetRequest& request) const {
  ASSIGN_OR_RETURN(const state::GroupEpoch before, epochs_.Load(transaction));
  ResetDone done{.old_epoch = before.epoch, .generation = before.generation};
  const state::SeekTarget& seek = request.seek;
  ASSIGN_OR_RETURN(
      done.epoch,
      epochs_.BeginNew(transaction, {.seek = seek,
                                     .fence = request.fence,
                                     .takeover = request.takeover,
                                     .skip_before = seek.time ? seek.time : request.skip_before,
                                     .overwrite = request.mode == ResetMode::kOverwrite,
                                     .overwrite_until = request.overwrite_until,
                                     .by = request.operator_name}));
  if (request.mode == ResetMode::kEmpty) {
    RETURN_IF_ERROR(Empty(transaction, request, before.generation));
    ASSIGN_OR_RETURN(done.generation,
                     slots_.NewGeneration(transaction, before.slot, before.generation));
  } else if (seek.time) {
    ASSIGN_OR_RETURN(const bool forward, offsets_.IsForward(transaction, group_, *seek.time));
    if (forward) RETURN_IF_ERROR(key_states_.SkipGaps(transaction, before.generation));
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
  RETURN_IF_ERROR(offsets_.Reset(transaction, record));
  return done;
}

absl::Status Resets::Empty(postgres::Transaction& transaction, const ResetRequest& request,
                           int old_generation) const {
  for (const std::string& table : request.tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    RETURN_IF_ERROR(transaction.Execute(fmt::format("TRUNCATE {}", name.Quoted())).status());
  }
  return dead_letters_.DiscardAll(transaction, old_generation, request.operator_name,
                                  "a reset emptied the read model");
}

absl::StatusOr<std::vector<std::string>> Resets::Holders(
    postgres::Connection& connection, const std::vector<std::string>& tables) const {
  postgres::Array names;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    names.Add(name.Quoted());
  }
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   connection.Execute(kHolders, group_.value(), schema_.name(), names));
  std::vector<std::string> holders;
  holders.reserve(rows.rows());
  for (const postgres::Row row : rows) {
    const std::string_view name = row.Text("application_name");
    holders.push_back(fmt::format("{} (pid {}, {}, {} s in its transaction)",
                                  name.empty() ? "a session" : name, row.Int("pid"),
                                  row.Text("state"), row.Int("seconds")));
  }
  return holders;
}

}  // namespace lockstep::offsets
