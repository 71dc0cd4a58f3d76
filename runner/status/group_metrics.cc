#include "runner/status/group_metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace lockstep::runner {
namespace {

const prometheus::Histogram::BucketBoundaries kSizes = {1, 2, 5, 10, 25, 50, 100, 250, 500, 1000};

// Where the events that ended so are counted, in the order of Fate.
constexpr int64_t GroupCounts::*kEndings[] = {
    &GroupCounts::parked,     &GroupCounts::parked,     &GroupCounts::applied,
    &GroupCounts::superseded, &GroupCounts::superseded, &GroupCounts::ignored,
    &GroupCounts::duplicates, &GroupCounts::ended_dead, &GroupCounts::ended_dead};
static_assert(std::size(kEndings) == static_cast<size_t>(Fate::kDeadAndBlocking) + 1);

}  // namespace

GroupMetrics::Stage::Stage(MetricsRegistry& registry, const Labels& labels)
    : all(HistogramOf(registry, "runner_stage_lag_seconds", "Time that events spend in each stage",
                      labels)),
      last(GaugeOf(registry, "runner_stage_lag_last_seconds", "The newest sample of each stage",
                   labels)) {}

void GroupMetrics::Stage::Note(WallTime::duration time) {
  const double seconds = std::max(0.0, std::chrono::duration<double>(time).count());
  all.Observe(seconds);
  last.Set(seconds);
}

GroupMetrics::GroupMetrics(MetricsRegistry& registry, const std::string& group)
    : batch_(HistogramOf(registry, "runner_batch_events", "Messages per transaction",
                         {{"group", group}}, kSizes)),
      transaction_(HistogramOf(registry, "runner_transaction_seconds",
                               "From BEGIN to the answer of COMMIT", {{"group", group}})),
      published_(registry, {{"group", group}, {"stage", "occurred_to_published"}}),
      received_(registry, {{"group", group}, {"stage", "published_to_received"}}),
      committed_(registry, {{"group", group}, {"stage", "received_to_committed"}}) {
  for (const GroupCounter& c : kGroupCounters) {
    if (c.ending != nullptr) {
      exported_.push_back(
          {c.count, &CounterOf(registry, "runner_events_total", "Events by what became of them",
                               {{"group", group}, {"result", c.ending}})});
    }
    if (c.metric == nullptr) continue;
    Labels labels = {{"group", group}};
    if (c.result != nullptr) labels["result"] = c.result;
    exported_.push_back({c.count, &CounterOf(registry, c.metric, c.help, labels)});
  }
}

void GroupMetrics::Count(const GroupCounts& more) {
  for (const auto& [count, counter] : exported_) {
    if (more.*count > 0) counter->Increment(static_cast<double>(more.*count));
  }
  const std::scoped_lock lock(mu_);
  for (const GroupCounter& c : kGroupCounters) counts_.*c.count += more.*c.count;
}

void GroupMetrics::Committed(std::span<Inbound* const> items, const BatchResult& result,
                             const Inbound* newest, WallTime now, double transaction_seconds) {
  GroupCounts counts{.released = result.released,
                     .dead = result.dead,
                     .batches = 1,
                     .offsets_saved = newest != nullptr ? 1 : 0};
  for (size_t i = 0; i < result.fates.size(); ++i) {
    const Fate fate = result.fates[i];
    ++(counts.*kEndings[static_cast<size_t>(fate)]);
    if (fate == Fate::kWaitsForPredecessor) ++counts.gaps;
    if (!items[i]->event.is_snapshot()) continue;
    if (fate == Fate::kApplied) ++counts.snapshots;
    if (fate == Fate::kOvertaken) ++counts.snapshots_overtaken;
  }
  Count(counts);
  transaction_.Observe(transaction_seconds);
  {
    const std::scoped_lock lock(mu_);
    last_commit_ = now;
    if (newest != nullptr) lag_ = std::chrono::duration_cast<Millis>(now - newest->publish_time);
  }
  if (items.empty()) return;
  batch_.Observe(static_cast<double>(items.size()));
  // One message of the batch stands for it: the histograms stay honest and cost nothing. (What came
  // aside may have waited there for long.)
  if (newest == nullptr) return;
  const Inbound& sample = items.front()->aside ? *newest : *items.front();
  if (sample.event.occurred_at != WallTime()) {
    published_.Note(sample.publish_time - sample.event.occurred_at);
  }
  received_.Note(sample.received_at - sample.publish_time);
  committed_.Note(now - sample.received_at);
}

void GroupMetrics::Heartbeat(WallTime published) {
  const std::scoped_lock lock(mu_);
  last_heartbeat_ = std::max(last_heartbeat_, published);
}

int64_t GroupMetrics::handled() const {
  const std::scoped_lock lock(mu_);
  return counts_.handled();
}

void GroupMetrics::Fill(GroupStatus& status) const {
  status.stages = {published_.last.Value(), received_.last.Value(), committed_.last.Value()};
  const std::scoped_lock lock(mu_);
  status.counts = counts_;
  status.last_commit = last_commit_;
  status.last_heartbeat = last_heartbeat_;
  status.lag = lag_;
}

}  // namespace lockstep::runner
