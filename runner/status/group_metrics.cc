#include "runner/status/group_metrics.h"

#include <algorithm>
#include <chrono>

namespace lockstep::runner {
namespace {

const prometheus::Histogram::BucketBoundaries kSizes = {1, 2, 5, 10, 25, 50, 100, 250, 500, 1000};

double Seconds(WallTime::duration time) {
  return std::max(0.0, std::chrono::duration<double>(time).count());
}

int64_t& CountOf(GroupCounts& counts, Fate fate) {
  switch (fate) {
    case Fate::kApplied:
      return counts.applied;
    case Fate::kSuperseded:
      return counts.superseded;
    case Fate::kIgnored:
      return counts.ignored;
    case Fate::kDuplicate:
      return counts.duplicates;
    case Fate::kWaitsForPredecessor:
    case Fate::kWaitsForDeadLetter:
      return counts.parked;
    case Fate::kDead:
    case Fate::kDeadAndBlocking:
      break;
  }
  return counts.ended_dead;
}

Labels With(Labels labels, const char* name, const char* value) {
  labels[name] = value;
  return labels;
}

}  // namespace

GroupMetrics::Stage::Stage(MetricsRegistry& registry, Labels labels, const char* name)
    : all(HistogramOf(registry, "runner_stage_lag_seconds", "Time that events spend in each stage",
                      With(labels, "stage", name))),
      last(GaugeOf(registry, "runner_stage_lag_last_seconds", "The newest sample of each stage",
                   With(labels, "stage", name))) {}

void GroupMetrics::Stage::Note(WallTime::duration time) {
  newest = Seconds(time);
  all.Observe(newest);
  last.Set(newest);
}

GroupMetrics::GroupMetrics(MetricsRegistry& registry, const std::string& group)
    : offset_lag_(GaugeOf(registry, "offset_lag_ms",
                          "From publish to commit, of the last offset saved", {{"group", group}})),
      heartbeat_age_(GaugeOf(registry, "runner_heartbeat_age_seconds",
                             "Since the newest heartbeat was published; -1 = none",
                             {{"group", group}})),
      commit_age_(GaugeOf(registry, "runner_commit_age_seconds", "Since the last commit; -1 = none",
                          {{"group", group}})),
      halted_(
          GaugeOf(registry, "runner_halted", "1 while the group can't go on", {{"group", group}})),
      batch_(HistogramOf(registry, "runner_batch_events", "Messages per transaction",
                         {{"group", group}}, kSizes)),
      transaction_(HistogramOf(registry, "runner_transaction_seconds",
                               "From BEGIN to the answer of COMMIT", {{"group", group}})),
      published_(registry, {{"group", group}}, "occurred_to_published"),
      received_(registry, {{"group", group}}, "published_to_received"),
      committed_(registry, {{"group", group}}, "received_to_committed") {
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
  heartbeat_age_.Set(-1);
  commit_age_.Set(-1);
}

void GroupMetrics::Count(const GroupCounts& more) {
  for (const auto& [count, counter] : exported_) {
    if (more.*count > 0) counter->Increment(static_cast<double>(more.*count));
  }
  const std::scoped_lock lock(mu_);
  for (const GroupCounter& c : kGroupCounters) counts_.*c.count += more.*c.count;
}

GroupCounts GroupMetrics::counts() const {
  const std::scoped_lock lock(mu_);
  return counts_;
}

void GroupMetrics::Committed(std::span<Inbound* const> items, const BatchResult& result,
                             WallTime now, double transaction_seconds) {
  GroupCounts counts{.released = result.released, .dead = result.dead, .batches = 1};
  for (const Fate fate : result.fates) {
    ++CountOf(counts, fate);
    if (fate == Fate::kWaitsForPredecessor) ++counts.gaps;
  }
  Count(counts);
  transaction_.Observe(transaction_seconds);
  last_commit_ = now;
  if (items.empty()) return;
  batch_.Observe(static_cast<double>(items.size()));
  // One message of the batch stands for it: the histograms stay honest and cost nothing.
  const Inbound& sample = *items.front();
  if (sample.event.occurred_at != WallTime()) {
    published_.Note(sample.publish_time - sample.event.occurred_at);
  }
  received_.Note(sample.received_at - sample.publish_time);
  committed_.Note(now - sample.received_at);
}

GroupMetrics::Stages GroupMetrics::stages() const {
  return {published_.newest, received_.newest, committed_.newest};
}

void GroupMetrics::Heartbeat(WallTime published) {
  if (published > last_heartbeat_.load()) last_heartbeat_ = published;
}

void GroupMetrics::OffsetLag(Millis lag) {
  lag_ms_ = lag.count();
  offset_lag_.Set(static_cast<double>(lag.count()));
}

void GroupMetrics::Refresh(WallTime now) {
  const auto age = [&](WallTime at) { return at == WallTime() ? -1 : Seconds(now - at); };
  heartbeat_age_.Set(age(last_heartbeat_));
  commit_age_.Set(age(last_commit_));
}

}  // namespace lockstep::runner
