// What an operator ends by hand: a dead letter (Batch::Resolve and its part of BatchRun), a gap.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"
#include "runner/batch/batch_run.h"

namespace lockstep::runner {

Poison PoisonOf(const absl::Status& failed) {
  const std::string sqlstate = postgres::SqlState(failed);
  std::string reason =
      fmt::format("{} (SQLSTATE {})", MessageOf(failed), sqlstate.empty() ? "?" : sqlstate);
  return postgres::Classify(failed) == postgres::ErrorClass::kData
             ? Poison::RefusedByDatabase(std::move(reason))
             : Poison::NeverCommits(std::move(reason));
}

absl::Status Batch::StillDead(postgres::Connection& connection, int64_t id,
                              const Poison& poison) const {
  RETURN_IF_ERROR(dead_letters_.Record(connection, id, poison));
  return InvalidArgument("dead letter {} can still not be applied: {}", id, poison.reason);
}

absl::StatusOr<BatchResult> Batch::Resolve(postgres::Connection& connection,
                                           const state::GroupEpoch& under,
                                           const state::DeadLetterResolution& resolution,
                                           Outside* outside) const {
  ASSIGN_OR_RETURN(BatchResult result, TryToResolve(connection, under, resolution, outside));
  if (!result.rolled_back) return result;
  if (!result.outage) {
    ASSIGN_OR_RETURN(result, TryToResolve(connection, under, resolution, outside));
  }
  if (!result.rolled_back) return result;
  if (result.outage) {
    return Unavailable("dead letter {} is as it was: {}", resolution.id, result.outage->reason);
  }
  return Unavailable("snapshots keep coming past dead letter {}: try again", resolution.id);
}

absl::StatusOr<BatchResult> Batch::TryToResolve(postgres::Connection& connection,
                                                const state::GroupEpoch& under,
                                                const state::DeadLetterResolution& resolution,
                                                Outside* outside) const {
  BatchResult result;
  RETURN_IF_ERROR(CheckInbox(under));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.Begin(connection, under));
  ASSIGN_OR_RETURN(state::OpenDeadLetter letter, dead_letters_.Load(transaction, resolution.id));
  if (letter.generation != under.generation) {
    return FailedPrecondition(
        "dead letter {} belongs to an earlier generation of the read model, which was emptied",
        resolution.id);
  }
  Inbound item(std::move(letter.item));
  if (resolution.replay && !item.poison) MapEvent(projector_, item);
  if (resolution.replay && item.poison) {
    RETURN_IF_ERROR(transaction.Rollback());
    return StillDead(connection, resolution.id, *item.poison);
  }
  // What waits behind it is released by transactions of its own: a fault there is not its fault.
  const ReleaseLimits none{.max_events = 0, .outside = outside};
  BatchRun run(*this, transaction, under, none);
  run.AddResolution(item, resolution);
  if (resolution.replay) {
    result.fates.assign(1, Fate::kDuplicate);
    run.Add(&item, 0, /*seen=*/false);
  }
  absl::Status applied = run.Finish(result);
  if (applied.ok() && !result.rolled_back) applied = run.CallOutside(result);
  if (applied.ok() && !result.rolled_back) {
    RETURN_IF_ERROR(transaction.Commit());
    return result;
  }
  RETURN_IF_ERROR(transaction.Rollback());
  if (applied.ok() && !item.poison) return result;
  if (!applied.ok() && postgres::Classify(applied) != postgres::ErrorClass::kData) return applied;
  if (!item.poison) item.poison = PoisonOf(applied);
  return StillDead(connection, resolution.id, *item.poison);
}

absl::StatusOr<BatchResult> Batch::SkipTo(postgres::Connection& connection,
                                          const state::GroupEpoch& under,
                                          const state::GapSkip& skip) const {
  const std::string& name = skip.aggregate_key;
  if (!minds_gaps()) {
    return FailedPrecondition("in group '{}' no event waits for a version that has not come",
                              group_.value());
  }
  RETURN_IF_ERROR(CheckInbox(under));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.Begin(connection, under));
  ASSIGN_OR_RETURN(const state::KeyRows rows,
                   key_states_.Lock(transaction, under.generation, {name}));
  const auto found = rows.find(name);
  if (found == rows.end() || !found->second.settled) {
    return NotFound("group '{}' has no aggregate {}", group_.value(), name);
  }
  const KeyRow& row = found->second;
  if (row.blocked && *row.blocked < skip.to) {
    return FailedPrecondition(
        "version {} of {} is a dead letter: replay or discard it, what waits goes on then",
        *row.blocked, name);
  }
  if (skip.to <= *row.settled + 1) {
    return FailedPrecondition("nothing is missing before version {} of {}: {} is settled", skip.to,
                              name, *row.settled);
  }
  ASSIGN_OR_RETURN(const int64_t waiting,
                   dead_letters_.AtHand(transaction, under.generation, name, skip.to - 1,
                                        std::numeric_limits<int64_t>::max()));
  if (waiting == 0) {
    return FailedPrecondition("nothing of {} waits at version {} or behind it", name, skip.to);
  }
  RETURN_IF_ERROR(key_states_.SkipTo(transaction, group_, under.generation, skip));
  RETURN_IF_ERROR(transaction.Commit());
  BatchResult result;
  result.unfinished.push_back(name);
  return result;
}

void BatchRun::AddResolution(const Inbound& item, const state::DeadLetterResolution& resolution) {
  resolved_ = &item;
  resolution_ = &resolution;
  if (!item.ordered()) return;
  Key& key = keys_[item.aggregate_key];
  key.reconsider = key.changed = true;
}

// Under the aggregate's lock, so that an event which comes meanwhile either sees it resolved or has
// parked where this transaction finds it.
absl::Status BatchRun::ResolveDeadLetter() {
  RETURN_IF_ERROR(batch_.dead_letters_.Resolve(transaction_, *resolution_));
  if (!resolved_->ordered()) return absl::OkStatus();
  Key& key = keys_[resolved_->aggregate_key];
  ASSIGN_OR_RETURN(key.row.blocked, batch_.dead_letters_.Blocking(transaction_, under_.generation,
                                                                  resolved_->aggregate_key));
  // (A snapshot that is given up leaves its version to the events.)
  const bool settles = !resolution_->replay && !resolved_->event.is_snapshot();
  if (settles && batch_.key_rules_.track_versions) {
    if (batch_.minds_gaps()) RETURN_IF_ERROR(CheckNoneIsMissing(key));
    if (resolved_->event.version > key.row.settled.value_or(0)) {
      key.row.settled = resolved_->event.version;
      key.row.last_event = resolved_->event.event_id.value();
    }
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

}  // namespace lockstep::runner
