#include "publisher/observe/relay_metrics.h"

#include <utility>

namespace lockstep::publisher {
namespace {

double Seconds(Millis time) { return static_cast<double>(time.count()) / 1000; }

}  // namespace

prometheus::Gauge& ShardsHeld(MetricsRegistry& registry, const std::string& table) {
  return GaugeOf(registry, "outbox_shards_held", "shards that this instance relays",
                 {{"table", table}});
}

RelayMetrics::RelayMetrics(MetricsRegistry& registry, std::string table, TopicLabels labels)
    : registry_(registry),
      table_(std::move(table)),
      labels_(std::move(labels)),
      leader_(&GaugeOf(registry, "outbox_relay_leader", "1 when any shard is held here",
                       {{"table", table_}})),
      conflicts_(&CounterOf(registry, "outbox_lost_leases_total",
                            "steps that found their lease gone", {{"table", table_}})),
      dedup_hits_(&CounterOf(registry, "outbox_dedup_hits_total",
                             "rows not sent because their content was", {{"table", table_}})),
      held_(&ShardsHeld(registry, table_)),
      retry_delay_(&HistogramOf(registry, "outbox_retry_delay_seconds",
                                "waits given to rows that failed", {{"table", table_}})) {
  // From nothing on: a series that its first fault brings forth has no rate.
  for (const char* code : {"PROVIDER.UNAVAILABLE", "TX.TIMEOUT", "UNKNOWN.INTERNAL"}) Retries(code);
}

RelayMetrics::Topic& RelayMetrics::Of(const std::string& name) {
  const std::string topic = labels_.Of(name);
  const auto found = topics_.find(topic);
  if (found != topics_.end()) return found->second;
  const Labels labels = {{"table", table_}, {"topic", topic}};
  Labels success = labels;
  success["result"] = "success";
  Labels failure = labels;
  failure["result"] = "failure";
  Topic made;
  made.enqueued = &CounterOf(registry_, "outbox_enqueue_total",
                             "events enqueued, counted when first claimed", labels);
  made.dead = &CounterOf(registry_, "outbox_dead_total", "rows that became dead", labels);
  made.succeeded = &CounterOf(registry_, "outbox_dispatch_total", "rows dispatched", success);
  made.failed = &CounterOf(registry_, "outbox_dispatch_total", "rows dispatched", failure);
  made.success_latency = &HistogramOf(registry_, "outbox_dispatch_latency_seconds",
                                      "from sending to the answer", success);
  made.failure_latency = &HistogramOf(registry_, "outbox_dispatch_latency_seconds",
                                      "from sending to the answer", failure);
  made.to_publish = &HistogramOf(registry_, "outbox_enqueue_to_publish_seconds",
                                 "from enqueue to the first publish", labels);
  return topics_.emplace(topic, made).first->second;
}

prometheus::Counter& RelayMetrics::Retries(std::string_view code) {
  const auto found = retries_.find(code);
  if (found != retries_.end()) return *found->second;
  auto& made = CounterOf(registry_, "outbox_retry_total", "rows that will be tried again",
                         {{"table", table_}, {"code", std::string(code)}});
  retries_.emplace(std::string(code), &made);
  return made;
}

void RelayMetrics::OnClaimed(const std::vector<OutboxRow>& rows) {
  for (const OutboxRow& row : rows) {
    if (row.first_claim) Of(row.topic).enqueued->Increment();
  }
}

void RelayMetrics::OnRow(const RowEvent& event) {
  switch (event.kind) {
    case RowEvent::Kind::kDedupHit:
      return dedup_hits_->Increment();
    case RowEvent::Kind::kPublished:
    case RowEvent::Kind::kKnown: {
      Topic& topic = Of(event.row.topic);
      topic.succeeded->Increment();
      topic.success_latency->Observe(Seconds(event.took));
      const auto age = std::chrono::system_clock::now() - event.row.created_at;
      topic.to_publish->Observe(Seconds(std::chrono::duration_cast<Millis>(age)));
      return;
    }
    case RowEvent::Kind::kFailed:
      Of(event.row.topic).failed->Increment();
      return Of(event.row.topic).failure_latency->Observe(Seconds(event.took));
    case RowEvent::Kind::kRetry:
    case RowEvent::Kind::kUnblamed:
    case RowEvent::Kind::kOutage:
      Retries(event.code).Increment();
      return retry_delay_->Observe(Seconds(event.wait));
    case RowEvent::Kind::kDead:
      return Of(event.row.topic).dead->Increment();
    case RowEvent::Kind::kLostLease:
      return conflicts_->Increment();
  }
}

void RelayMetrics::OnShards(const std::vector<int>& held, int) {
  leader_->Set(held.empty() ? 0 : 1);
  held_->Set(static_cast<double>(held.size()));
}

}  // namespace lockstep::publisher
