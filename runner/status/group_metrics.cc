#include "runner/status/group_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

namespace lockstep::runner {
namespace {

using Labels = std::map<std::string, std::string>;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                          0.5,   1,      2.5,   5,    10,    30,   60,  300};
const Buckets kSizes = {1, 2, 5, 10, 25, 50, 100, 250, 500, 1000};

double Seconds(WallTime::duration time) {
  return std::max(0.0, std::chrono::duration<double>(time).count());
}

}  // namespace

struct GroupMetrics::Handles {
  Handles(MetricsRegistry& registry, const std::string& group)
      : registry_(registry), group_(group) {}

  prometheus::Counter& Counter(const char* name, const char* help, Labels more = {}) {
    more["group"] = group_;
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(more);
  }
  prometheus::Gauge& Gauge(const char* name, const char* help, Labels more = {}) {
    more["group"] = group_;
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(more);
  }
  prometheus::Gauge& LastStage(const char* stage) {
    return Gauge("runner_stage_lag_last_seconds", "The newest sample of each stage",
                 {{"stage", stage}});
  }
  prometheus::Histogram& Histogram(const char* name, const char* help, const Buckets& buckets,
                                   Labels more = {}) {
    more["group"] = group_;
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(more,
                                                                                      buckets);
  }
  prometheus::Counter& Event(const char* result) {
    return Counter("runner_events_total", "Events by what became of them", {{"result", result}});
  }
  prometheus::Histogram& Stage(const char* stage) {
    return Histogram("runner_stage_lag_seconds", "Time that events spend in each stage", kSeconds,
                     {{"stage", stage}});
  }

  MetricsRegistry& registry_;
  const std::string group_;

  prometheus::Counter& deliveries = Counter("runner_deliveries_total", "Messages received");
  prometheus::Counter& applied = Event("applied");
  prometheus::Counter& superseded = Event("superseded");
  prometheus::Counter& ignored = Event("ignored");
  prometheus::Counter& duplicate = Event("duplicate");
  prometheus::Counter& parked = Event("parked");
  prometheus::Counter& dead = Event("dead");
  prometheus::Counter& duplicates =
      Counter("runner_duplicates_total", "Events that the inbox knew");
  prometheus::Counter& stale =
      Counter("runner_stale_versions_total", "Events that a newer version had superseded");
  prometheus::Counter& gaps =
      Counter("runner_gaps_total", "Events that were parked because a version was missing");
  prometheus::Counter& parks = Counter("runner_parked_total", "Events that were parked");
  prometheus::Counter& released =
      Counter("runner_released_total", "Parked events that were applied");
  prometheus::Counter& dead_letters = Counter("runner_dead_letters_total", "Dead letters written");
  prometheus::Counter& acks = Counter("runner_acks_total", "Acks by result", {{"result", "ok"}});
  prometheus::Counter& ack_failures =
      Counter("runner_acks_total", "Acks by result", {{"result", "failed"}});
  prometheus::Counter& nacks = Counter("runner_nacks_total", "Messages given back to the bus");
  prometheus::Counter& failures =
      Counter("runner_transaction_failures_total", "Transactions that failed and were retried");
  prometheus::Counter& saves = Counter("offset_save_total", "Offsets saved");
  prometheus::Counter& save_failures =
      Counter("offset_save_failure_total", "Offsets that could not be saved");
  prometheus::Gauge& offset_lag =
      Gauge("offset_lag_ms", "From publish to commit, of the last offset saved");
  prometheus::Gauge& heartbeat_age =
      Gauge("runner_heartbeat_age_seconds", "Since the newest heartbeat was published; -1 = none");
  prometheus::Gauge& commit_age =
      Gauge("runner_commit_age_seconds", "Since the last commit; -1 = none");
  prometheus::Gauge& halted = Gauge("runner_halted", "1 while the group can't go on");
  prometheus::Histogram& batch =
      Histogram("runner_batch_events", "Messages per transaction", kSizes);
  prometheus::Histogram& transaction =
      Histogram("runner_transaction_seconds", "From BEGIN to the answer of COMMIT", kSeconds);
  prometheus::Histogram& published = Stage("occurred_to_published");
  prometheus::Histogram& received = Stage("published_to_received");
  prometheus::Histogram& committed = Stage("received_to_committed");
  prometheus::Gauge& last_published = LastStage("occurred_to_published");
  prometheus::Gauge& last_received = LastStage("published_to_received");
  prometheus::Gauge& last_committed = LastStage("received_to_committed");
};

GroupMetrics::GroupMetrics(MetricsRegistry& registry, const std::string& group)
    : handles_(std::make_shared<Handles>(registry, group)) {
  handles_->heartbeat_age.Set(-1);
  handles_->commit_age.Set(-1);
}

void GroupMetrics::Delivered(int64_t count) {
  handles_->deliveries.Increment(static_cast<double>(count));
  totals_.deliveries += count;
}

void GroupMetrics::Committed(std::span<Inbound* const> items, const BatchResult& result,
                             WallTime now, double transaction_seconds) {
  int64_t ended[6] = {};
  for (size_t i = 0; i < items.size(); ++i) ++ended[static_cast<int>(result.endings[i])];
  const auto add = [&](Ending ending, prometheus::Counter& counter, std::atomic<int64_t>& total) {
    const int64_t count = ended[static_cast<int>(ending)];
    if (count > 0) counter.Increment(static_cast<double>(count));
    total += count;
    return static_cast<double>(count);
  };
  const Handles& h = *handles_;
  add(Ending::kApplied, h.applied, totals_.applied);
  add(Ending::kIgnored, h.ignored, totals_.ignored);
  h.stale.Increment(add(Ending::kSuperseded, h.superseded, totals_.superseded));
  h.duplicates.Increment(add(Ending::kDuplicate, h.duplicate, totals_.duplicates));
  h.parks.Increment(add(Ending::kParked, h.parked, totals_.parked));
  h.dead.Increment(static_cast<double>(ended[static_cast<int>(Ending::kDead)]));
  h.gaps.Increment(result.gaps);
  h.released.Increment(result.released);
  h.dead_letters.Increment(result.dead);
  totals_.gaps += result.gaps;
  totals_.released += result.released;
  totals_.dead += result.dead;
  ++totals_.batches;
  h.transaction.Observe(transaction_seconds);
  last_commit_ = now;
  if (items.empty()) return;
  h.batch.Observe(static_cast<double>(items.size()));
  // One message of the batch stands for it: the histograms stay honest and cost nothing.
  const Inbound& sample = *items.front();
  handled_ += static_cast<int64_t>(items.size());
  const auto note = [](double seconds, prometheus::Histogram& histogram, prometheus::Gauge& gauge,
                       std::atomic<double>& last) {
    histogram.Observe(seconds);
    gauge.Set(seconds);
    last = seconds;
  };
  if (sample.event.occurred_at != WallTime()) {
    note(Seconds(sample.publish_time - sample.event.occurred_at), h.published, h.last_published,
         to_published_);
  }
  note(Seconds(sample.received_at - sample.publish_time), h.received, h.last_received,
       to_received_);
  note(Seconds(now - sample.received_at), h.committed, h.last_committed, to_committed_);
}

GroupMetrics::Stages GroupMetrics::stages() const {
  return {to_published_, to_received_, to_committed_};
}

void GroupMetrics::Failed() {
  handles_->failures.Increment();
  ++totals_.failures;
}

void GroupMetrics::Acked(int64_t ok, int64_t failed) {
  if (ok > 0) handles_->acks.Increment(static_cast<double>(ok));
  if (failed > 0) handles_->ack_failures.Increment(static_cast<double>(failed));
  totals_.acks += ok;
  totals_.ack_failures += failed;
}

void GroupMetrics::Nacked(int64_t count) {
  handles_->nacks.Increment(static_cast<double>(count));
  totals_.nacks += count;
}

void GroupMetrics::Heartbeat(WallTime published) {
  if (published > last_heartbeat_.load()) last_heartbeat_ = published;
}

void GroupMetrics::OffsetSaved(bool ok) {
  (ok ? handles_->saves : handles_->save_failures).Increment();
}

void GroupMetrics::OffsetLag(Millis lag) {
  lag_ms_ = lag.count();
  handles_->offset_lag.Set(static_cast<double>(lag.count()));
}

void GroupMetrics::Refresh(WallTime now) {
  const auto age = [&](WallTime at) { return at == WallTime() ? -1 : Seconds(now - at); };
  handles_->heartbeat_age.Set(age(last_heartbeat_));
  handles_->commit_age.Set(age(last_commit_));
}

void GroupMetrics::Halted(bool halted) { handles_->halted.Set(halted ? 1 : 0); }

GroupCounts GroupMetrics::counts() const {
  const Totals& t = totals_;
  return {.deliveries = t.deliveries,
          .applied = t.applied,
          .superseded = t.superseded,
          .ignored = t.ignored,
          .duplicates = t.duplicates,
          .parked = t.parked,
          .released = t.released,
          .gaps = t.gaps,
          .dead = t.dead,
          .acks = t.acks,
          .ack_failures = t.ack_failures,
          .nacks = t.nacks,
          .batches = t.batches,
          .failures = t.failures};
}

}  // namespace lockstep::runner
