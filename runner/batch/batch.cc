#include "runner/batch/batch.h"

#include <algorithm>

#include "platform/boot_time.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/table_locks.h"
#include "runner/batch/batch_run.h"

namespace lockstep::runner {
namespace {

state::LaneOffset OffsetAfter(const ConsumerGroup& group, const state::GroupEpoch& under,
                              const LaneIdentity& lane, const Inbound& last) {
  const auto lag = std::chrono::duration_cast<Millis>(Clock::System().Now() - last.publish_time);
  return {.group = group,
          .instance = lane.instance,
          .lane = lane.lane,
          .subscription = under.subscription,
          .position = {last.publish_time, last.message_id},
          .epoch = under.epoch,
          .lag = std::max(lag, Millis(0))};
}

absl::StatusOr<BatchResult> End(BatchRun& run, postgres::Transaction& transaction,
                                BatchResult result) {
  if (!result.rolled_back) RETURN_IF_ERROR(run.CallOutside(result));
  result.commit_began = BootTime();
  RETURN_IF_ERROR(result.rolled_back ? transaction.Rollback() : transaction.Commit());
  return result;
}

}  // namespace

absl::Status CheckByVersions(const std::string& group, OnGap on_gap,
                             const projections::Projector& projector) {
  constexpr std::string_view kCure =
      "set inbox: event; a generation that was begun with inbox: aggregate keeps it, until a "
      "rebuild or a reset that empties begins another (docs/runner.md)";
  if (on_gap != OnGap::kPark) {
    return FailedPrecondition(
        "group '{}': inbox: aggregate knows an event again by its version, so every event must "
        "wait for the one before: set on_gap: park, or {}",
        group, kCure);
  }
  const std::string why = projector.NeedsEachEvent();
  if (why.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "group '{}': inbox: aggregate keeps nothing of single events, and {}: give that a group of "
      "its own, or {}",
      group, why, kCure);
}

Batch::Batch(const state::Schema& schema, const ConsumerGroup& group,
             const projections::Projector& projector, state::OffsetProvider& offsets,
             BatchRules rules)
    : schema_(schema.name()),
      group_(group),
      projector_(projector),
      offsets_(offsets),
      rules_(rules),
      key_rules_(rules.ForKeys(projector.MayPark())),
      epochs_(schema, group),
      opening_(schema, key_rules_.track_versions, key_rules_.from_the_first),
      key_states_(schema),
      parking_(schema),
      dead_letters_(schema, group),
      inbox_(schema),
      slots_(schema, group) {}

absl::StatusOr<BatchResult> Batch::Run(postgres::Connection& connection,
                                       const state::GroupEpoch& under, const LaneIdentity& lane,
                                       std::span<Inbound* const> items,
                                       const ReleaseLimits& limits) const {
  BatchResult result{.began = Clock::System().Steady()};
  result.fates.assign(items.size(), Fate::kDuplicate);
  if (items.empty()) return result;
  RETURN_IF_ERROR(CheckInbox(under));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.BeginUnchecked(connection, under));
  std::optional<BatchRun> run;
  const auto add = [&](const std::vector<bool>& fresh) {
    run.emplace(*this, transaction, under, limits);
    for (size_t i = 0; i < items.size(); ++i) {
      if (fresh[i] || Overwrites(under, *items[i])) run->Add(items[i], i, !fresh[i]);
    }
  };
  const std::vector<const envelope::Received*> received(items.begin(), items.end());
  std::vector<state::Fate> expected;
  expected.reserve(items.size());
  for (const Inbound* const item : items) expected.push_back(ExpectedFate(*item));
  const state::Arrivals arrivals(received, expected, under.by_versions);
  add(arrivals.first);  // as if the inbox knew none of them
  ASSIGN_OR_RETURN(state::Opening::Answer answer,
                   opening_.Enter(transaction, under, received, arrivals, run->Chains()));
  RETURN_IF_ERROR(epochs_.Check(under, answer.epoch));
  if (!answer.all_new) {
    add(answer.fresh);
    ASSIGN_OR_RETURN(answer.not_moved, opening_.Lock(transaction, under, run->Chains()));
  }
  RETURN_IF_ERROR(run->Finish(result, std::move(answer.not_moved)));
  if (result.rolled_back) return End(*run, transaction, std::move(result));
  const Inbound* const newest = NewestOf(items);
  if (newest == nullptr) return End(*run, transaction, std::move(result));
  const WallTime first = OldestOf(items);
  if (!under.first_publish_time || first < *under.first_publish_time) {
    RETURN_IF_ERROR(slots_.NoteFirst(transaction, under.slot, first));
  }
  RETURN_IF_ERROR(offsets_.Save(&transaction, OffsetAfter(group_, under, lane, *newest)));
  return End(*run, transaction, std::move(result));
}

absl::Status Batch::CheckInbox(const state::GroupEpoch& under) const {
  return under.by_versions ? CheckByVersions(group_.value(), rules_.on_gap, projector_)
                           : absl::OkStatus();
}

absl::Status Batch::Confirm(postgres::Connection& connection,
                            const state::GroupEpoch& under) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.Begin(connection, under));
  return transaction.Rollback();
}

absl::StatusOr<std::string> Batch::WhoLocksATable(postgres::Connection& connection) const {
  return postgres::WhoLocks(connection, schema_, projector_.AllTables());
}

absl::StatusOr<BatchResult> Batch::Release(postgres::Connection& connection,
                                           const state::GroupEpoch& under,
                                           const std::vector<std::string>& keys,
                                           const ReleaseLimits& limits, Loaded* loaded) const {
  BatchResult result{.began = Clock::System().Steady()};
  if (keys.empty()) return result;
  RETURN_IF_ERROR(CheckInbox(under));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.Begin(connection, under));
  BatchRun run(*this, transaction, under, limits);
  for (const std::string& key : keys) run.AddKey(key);
  const absl::Status finished = run.Finish(result);
  if (loaded != nullptr) *loaded = run.loaded();
  RETURN_IF_ERROR(finished);
  return End(run, transaction, std::move(result));
}

}  // namespace lockstep::runner
