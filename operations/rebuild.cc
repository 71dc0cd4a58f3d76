#include "operations/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "platform/metrics.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "runner/group/group.h"
#include "runner/lane/admission.h"

namespace lockstep::operations {
namespace {

using state::RebuildRow;
using state::RebuildState;

constexpr std::string_view kLockNotAvailable = "55P03";
constexpr Millis kLockTry{1'000};
// How long the live slot may need to catch up with the shadow, and how often that is tried before
// the two are compared as they are (no runner may be up).
constexpr Millis kLevel{5'000};
constexpr Millis kLevelLook{20};
constexpr int kLevelTries = 5;
// The longest that a batch of the live slot can have been under way.
constexpr std::chrono::minutes kLongestBatch{5};
constexpr std::chrono::seconds kCheckEvery{1};
constexpr std::chrono::seconds kMissingFor{30};
constexpr Millis kNearlyThere{2'000};  // of lag: worth a look whether it is all there

}  // namespace

// The group that fills the shadow, while it runs.
class Rebuild::Filling : public runner::Admission {
 public:
  Filling(Rebuild& rebuild, const RebuildRow& row) : rebuild_(rebuild), row_(row) {}
  ~Filling() override { Stop(); }

  absl::Status Start() {
    if (group_) return absl::OkStatus();
    const Parts& parts = rebuild_.parts_;
    ASSIGN_OR_RETURN(auto projector, parts.projector(row_.shadow_suffix()));
    runner::GroupOptions options = parts.options;
    options.name = rebuild_.rebuilds_.shadow_group().value();
    options.subscription = row_.new_subscription;
    options.checkpoints = false;
    ASSIGN_OR_RETURN(
        before_, rebuild_.inbox_.CountSince(rebuild_.connection_, rebuild_.rebuilds_.shadow_group(),
                                            WallTime()));
    metrics_ = std::make_unique<MetricsRegistry>();
    environment_.reset(new runner::GroupEnvironment{.database = parts.database,
                                                    .state_schema = parts.state_schema,
                                                    .instance = parts.instance,
                                                    .transport = parts.transport,
                                                    .metrics = *metrics_,
                                                    .existing_only = true,
                                                    .admission = this});
    follow_ = 0;
    group_ =
        std::make_unique<runner::Group>(std::move(options), std::move(projector), *environment_);
    return group_->Start();
  }
  void Stop() { group_.reset(); }

  // From now on only what this generation has seen is applied.
  void FollowOnly(int generation) { follow_ = generation; }

  std::vector<bool> Admit(postgres::Connection& connection,
                          std::span<runner::Inbound* const> items) const override {
    std::vector<bool> admitted(items.size(), true);
    if (follow_ == 0) return admitted;
    std::vector<std::string> ids;
    for (const runner::Inbound* item : items) ids.push_back(item->event.event_id.value());
    const auto seen = rebuild_.inbox_.Seen(connection, follow_, ids);
    for (size_t i = 0; seen.ok() && i < ids.size(); ++i) {
      // What has no readable id is in no inbox; it is a dead letter in both.
      admitted[i] = (*seen)[i] || ids[i].empty();
    }
    return admitted;
  }

  int64_t done() const {
    const runner::GroupCounts counts = group_->status().counts;
    return before_ + counts.applied + counts.superseded + counts.ignored + counts.parked +
           counts.dead;
  }
  // About; asked again only when it is reached, for the live slot goes on.
  absl::StatusOr<int64_t> Total() {
    if (!row_.seek.time) return 0;
    if (total_ > 0 && done() < total_) return total_;
    ASSIGN_OR_RETURN(
        total_, rebuild_.inbox_.CountSince(rebuild_.connection_, rebuild_.group_, *row_.seek.time));
    return total_;
  }
  // No event for so long; heartbeats go on.
  bool NothingComes() {
    const SteadyTime now = Clock::System().Steady();
    const int64_t count = done();
    if (count != last_count_ || !group_->DrainedFor(Millis(0))) last_event_ = now;
    last_count_ = count;
    return now - last_event_ >= rebuild_.quiet;
  }
  bool NearlyThere() const {
    const runner::GroupStatus status = group_->status();
    return status.counts.batches > 0 && status.lag < kNearlyThere;
  }
  absl::Status Halted() const {
    const runner::GroupStatus status = group_->status();
    if (status.state != runner::GroupState::kHalted) return absl::OkStatus();
    return FailedPrecondition("the shadow can't be filled: {}", status.reason);
  }

 private:
  Rebuild& rebuild_;
  const RebuildRow& row_;
  std::unique_ptr<MetricsRegistry> metrics_;
  std::unique_ptr<runner::GroupEnvironment> environment_;
  std::unique_ptr<runner::Group> group_;
  std::atomic<int> follow_{0};
  int64_t before_ = 0;
  int64_t total_ = 0;
  int64_t last_count_ = -1;
  SteadyTime last_event_;
};

Rebuild::Rebuild(Parts parts, postgres::Connection& connection, Listener listener)
    : parts_(std::move(parts)),
      connection_(connection),
      listener_(std::move(listener)),
      schema_(parts_.state_schema),
      group_(parts_.options.name),
      rebuilds_(schema_, group_),
      inbox_(schema_) {}

Rebuild::~Rebuild() = default;

absl::StatusOr<std::optional<RebuildRow>> Rebuild::Load() { return rebuilds_.Load(connection_); }

absl::Status Rebuild::LockDriver() {
  if (driver_) return absl::OkStatus();
  // The session of a process that has just ended may linger for a moment.
  for (int i = 0; i < 5 && !driver_; ++i) {
    if (i > 0) std::this_thread::sleep_for(Millis(200));
    ASSIGN_OR_RETURN(driver_, rebuilds_.TryLock(connection_));
  }
  if (driver_) return connection_.Execute("SET statement_timeout = 0").status();
  return FailedPrecondition("another lockstepctl is at the rebuild of '{}'", group_.value());
}

absl::StatusOr<RebuildRow> Rebuild::Need() {
  RETURN_IF_ERROR(LockDriver());
  ASSIGN_OR_RETURN(auto row, rebuilds_.Load(connection_));
  if (!row) return NotFound("there is no rebuild of '{}'", group_.value());
  return *std::move(row);
}

RebuildSwap Rebuild::Swapper(const RebuildRow& row) {
  return RebuildSwap(schema_, group_, ShadowTables(row.tables), parts_.write_times);
}

absl::Status Rebuild::Resume(bool despite_differences, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kPreparing) {
    RETURN_IF_ERROR(Prepare(row));
    row.state = RebuildState::kFilling;
  }
  switch (row.state) {
    case RebuildState::kDiscarding:
      return Discard(row);
    case RebuildState::kSwapped:
      return absl::OkStatus();
    case RebuildState::kPreparing:
    case RebuildState::kFilling:
      break;
  }
  return Fill(row, despite_differences, stop);
}

absl::Status Rebuild::Prepare(const RebuildRow& row) {
  pubsub::Admin& admin = parts_.transport.admin();
  ASSIGN_OR_RETURN(pubsub::Subscription like, admin.GetSubscription(row.old_subscription));
  like.name = row.new_subscription;
  const auto made = admin.CreateSubscription(like);
  if (!made.ok() && !absl::IsAlreadyExists(made.status())) return made.status();
  RETURN_IF_ERROR(Reached("subscribed"));
  RETURN_IF_ERROR(RetryLocked([&] { return MakeShadow(row); }, row.tables));
  listener_.note(fmt::format("made {} and {}", row.new_subscription,
                             fmt::join(ShadowTables(row.tables).names(row.shadow_suffix()), ", ")));
  return Reached("made");
}

absl::Status Rebuild::MakeShadow(const RebuildRow& row) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(
      transaction.Execute(fmt::format("SET LOCAL lock_timeout = {}", kLockTry.count())).status());
  RETURN_IF_ERROR(ShadowTables(row.tables).Create(transaction, row.shadow_suffix()));
  const state::Epochs shadow(schema_, rebuilds_.shadow_group());
  RETURN_IF_ERROR(shadow.CreateShadow(transaction, {.slot = row.new_slot,
                                                    .subscription = row.new_subscription,
                                                    .seek = row.seek,
                                                    .tables = row.tables,
                                                    .suffix = row.shadow_suffix(),
                                                    .by = row.operator_name}));
  RETURN_IF_ERROR(rebuilds_.SetFilling(transaction));
  RETURN_IF_ERROR(Reached("making"));
  return transaction.Commit();
}

absl::Status Rebuild::Fill(const RebuildRow& row, bool despite_differences,
                           const std::stop_token& stop) {
  Filling filling(*this, row);
  SteadyTime checked;
  while (true) {
    RETURN_IF_ERROR(filling.Start());
    if (runner::SleepUnlessStopped(stop, poll)) {
      return absl::CancelledError(
          fmt::format("interrupted; `lockstepctl rebuild resume {0}` goes on, `lockstepctl rebuild "
                      "abort {0}` undoes it",
                      group_.value()));
    }
    RETURN_IF_ERROR(filling.Halted());
    ASSIGN_OR_RETURN(const int64_t total, filling.Total());
    const int64_t done = filling.done();
    listener_.progress({.done = done, .total = total});
    const bool nothing_comes = filling.NothingComes();
    const SteadyTime now = Clock::System().Steady();
    const bool maybe = nothing_comes || (total > 0 && done >= total) || filling.NearlyThere();
    if (!maybe || now - checked < kCheckEvery) continue;
    checked = now;
    ASSIGN_OR_RETURN(const bool caught_up, CaughtUp(row, nothing_comes));
    if (!caught_up) continue;
    RETURN_IF_ERROR(Reached("filled"));
    ASSIGN_OR_RETURN(const bool swapped, TrySwap(row, despite_differences, filling));
    if (swapped) return Reached("swapped");
  }
}

absl::StatusOr<bool> Rebuild::CaughtUp(const RebuildRow& row, bool nothing_comes) {
  const WallTime now = Clock::System().Now();
  ASSIGN_OR_RETURN(
      const auto missing,
      Swapper(row).CountMissing(connection_, row.seek.time.value_or(row.began_at), row.began_at));
  // What a snapshot brings back is not known before it has come.
  if (missing.all == 0 && (row.seek.time || nothing_comes)) {
    checked_until_ = now - kLongestBatch;
    return true;
  }
  // What is missing for so long under a load that never ends does not come either.
  if (missing.all != std::exchange(missing_, missing.all)) missing_since_ = now;
  if (missing.recent > 0 || !(nothing_comes || now - missing_since_ > kMissingFor)) return false;
  if (!row.accept_missing) {
    return FailedPrecondition(
        "{} events that the live tables have did not come again from the topic; abort the rebuild "
        "and begin it with --accept-missing if that is wanted",
        missing.all);
  }
  if (missing.all != std::exchange(not_redelivered_, missing.all)) {
    listener_.note(fmt::format("{} events of the live tables did not come again", missing.all));
  }
  checked_until_ = row.began_at;
  return true;
}

// The two must have seen the same events to be compared: from here on the shadow takes only what
// the live slot has taken, and the live slot catches up with what the shadow was ahead.
absl::StatusOr<bool> Rebuild::TrySwap(const RebuildRow& row, bool despite_differences,
                                      Filling& filling) {
  const RebuildSwap swap = Swapper(row);
  const WallTime since = std::max(checked_until_, row.seek.time.value_or(row.began_at));
  ASSIGN_OR_RETURN(const auto live, state::Epochs(schema_, group_).Load(connection_));
  filling.FollowOnly(live.generation);
  const SteadyTime give_up = Clock::System().Steady() + kLevel;
  while (Clock::System().Steady() < give_up) {
    ASSIGN_OR_RETURN(const int64_t ahead, swap.CountAhead(connection_, since));
    if (ahead == 0) break;
    std::this_thread::sleep_for(kLevelLook);
  }
  const auto result = swap.Try(connection_, {.check_since = since,
                                             .despite_differences = despite_differences,
                                             .level = ++tries_ < kLevelTries,
                                             .lock_try = kLockTry,
                                             .stop_shadow = [&] { filling.Stop(); },
                                             .at = at});
  filling.Stop();  // and with a new start it takes everything again
  if (postgres::SqlState(result.status()) == kLockNotAvailable) {
    ASSIGN_OR_RETURN(const auto holders,
                     offsets::Resets(schema_, group_).Holders(connection_, row.tables));
    listener_.note(fmt::format("the swap waits for {}",
                               holders.empty() ? "somebody who has just gone"
                                               : fmt::format("{}", fmt::join(holders, "; "))));
    return false;
  }
  if (!result.ok()) return result.status();
  last_swap_ = *result;
  if (result->swapped) return true;
  if (result->tables.empty()) return false;
  return FailedPrecondition(
      "the new tables differ from the live ones, so nothing was swapped; `lockstepctl rebuild "
      "resume {0} --accept-differences` puts them in place as they are, `lockstepctl rebuild abort "
      "{0}` drops them",
      group_.value());
}

absl::Status Rebuild::RetryLocked(const std::function<absl::Status()>& run,
                                  const std::vector<std::string>& tables) {
  const SteadyTime give_up = Clock::System().Steady() + std::chrono::minutes(2);
  while (true) {
    absl::Status done = run();
    if (done.ok() || postgres::SqlState(done) != kLockNotAvailable) return done;
    ASSIGN_OR_RETURN(const auto holders,
                     offsets::Resets(schema_, group_).Holders(connection_, tables));
    if (Clock::System().Steady() >= give_up) {
      return absl::DeadlineExceededError(
          fmt::format("nothing was changed: a lock is held by {}", fmt::join(holders, "; ")));
    }
    for (const std::string& holder : holders) listener_.note("waiting for " + holder);
  }
}

}  // namespace lockstep::operations
