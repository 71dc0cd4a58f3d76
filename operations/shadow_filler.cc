#include "operations/shadow_filler.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "projections/declare/group_file.h"

namespace lockstep::operations {
namespace {

constexpr Millis kNearlyThere{2'000};  // of lag

// Whether the group has handlers that a shadow does not call.
bool SomeAreNotCalled(const projections::Projector& projector) {
  return std::ranges::any_of(projector.Calls(), [](const projections::Call& call) {
    return call.is_http() || !call.replays;
  });
}

}  // namespace

absl::Status ShadowFiller::Start() {
  if (group_) return absl::OkStatus();
  ASSIGN_OR_RETURN(projections::GroupDeclaration shadow,
                   projections::LoadGroup(parts_.file, {.table_suffix = row_.shadow_suffix(),
                                                        .state_schema = parts_.state_schema,
                                                        .code = {}}));
  for (const projections::Table& table : shadow.projector->plan().tables) {
    write_times_[table.name.ToString()].insert(table.updated_at);
  }
  runner::GroupOptions options = parts_.options;
  options.name = name_.value();
  options.subscription = row_.new_subscription;
  options.snapshots = row_.new_snapshots;  // not the live group's
  if (row_.from_backfill()) options.baseline = runner::Baseline::kSnapshot;
  options.checkpoints = false;
  options.shadow = true;
  ASSIGN_OR_RETURN(before_, inbox_.CountSince(connection_, name_, WallTime()));
  metrics_ = std::make_unique<MetricsRegistry>();
  environment_.reset(new runner::GroupEnvironment{
      .database = parts_.database,
      .state_schema = parts_.state_schema,
      .instance = parts_.instance,
      .transport = parts_.transport,
      .metrics = *metrics_,
      .existing_only = true,
      .admission = [this](auto& session, auto items) { return Admit(session, items); }});
  // Handlers are called by the live slot alone: an event that the shadow had first would be known
  // after the swap, and nobody would call them. Older ones than the live slot gets go in.
  follow_ = 0;
  if (SomeAreNotCalled(*shadow.projector)) {
    ASSIGN_OR_RETURN(const state::GroupEpoch live, state::Epochs(schema_, live_).Load(connection_));
    constexpr std::chrono::minutes kDisorder{10};
    older_ = live.skip_before.value_or(WallTime());
    if (live.first_publish_time) older_ = std::max(older_, *live.first_publish_time - kDisorder);
    follow_ = live.generation;
  }
  group_ = std::make_unique<runner::Group>(std::move(options), std::move(shadow.projector),
                                           *environment_);
  return group_->Start();
}

std::vector<bool> ShadowFiller::Admit(postgres::Connection& connection,
                                      std::span<runner::Inbound* const> items) const {
  std::vector<bool> admitted(items.size(), true);
  if (follow_ == 0) return admitted;
  std::vector<state::EventFates::Event> events;
  for (const runner::Inbound* item : items) {
    state::EventFates::Event& event = events.emplace_back();
    event.event_id = item->event.event_id.value();
    event.aggregate_key = item->aggregate_key;
    if (item->has_version) event.version = item->event.version;
    event.snapshot = item->event.is_snapshot();
  }
  const auto seen = inbox_.Seen(connection, follow_, events);
  // Without an answer they wait: what the shadow had first, nobody would be called for.
  if (!seen.ok()) return std::vector<bool>(items.size(), false);
  for (size_t i = 0; i < events.size(); ++i) {
    // What has no readable id is in no inbox; it is a dead letter in both.
    admitted[i] = (*seen)[i] || events[i].event_id.empty() || items[i]->publish_time < older_;
  }
  return admitted;
}

int64_t ShadowFiller::done() const {
  const runner::GroupCounts counts = group_->status().counts;
  return before_ + counts.applied + counts.superseded + counts.ignored + counts.parked +
         counts.dead;
}

// Asked again only when it is reached, for the live slot goes on.
absl::StatusOr<int64_t> ShadowFiller::Total() {
  if (!row_.seek.time) return 0;
  if (total_ > 0 && done() < total_) return total_;
  ASSIGN_OR_RETURN(total_, inbox_.CountSince(connection_, live_, *row_.seek.time));
  return total_;
}

bool ShadowFiller::NothingComes() {
  const SteadyTime now = Clock::System().Steady();
  const int64_t count = done();
  if (count != last_count_ || !group_->DrainedFor(Millis(0))) last_event_ = now;
  last_count_ = count;
  return now - last_event_ >= parts_.quiet;
}

bool ShadowFiller::NearlyThere() const {
  const runner::GroupStatus status = group_->status();
  return status.counts.batches > 0 && status.lag < kNearlyThere;
}

absl::Status ShadowFiller::Halted() const {
  const runner::GroupStatus status = group_->status();
  if (status.state != runner::GroupState::kHalted) return absl::OkStatus();
  return FailedPrecondition("the shadow can't be filled: {}", status.reason);
}

}  // namespace lockstep::operations
