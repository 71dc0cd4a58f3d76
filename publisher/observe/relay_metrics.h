#pragma once

#include <map>
#include <string>

#include "platform/metrics.h"
#include "publisher/observe/topic_labels.h"
#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

// How many shards of an outbox this instance relays: there, and 0, where relay.enabled is off too.
prometheus::Gauge& ShardsHeld(MetricsRegistry& registry, const std::string& table);

// The publisher's metrics (docs/metrics.md) for one outbox. Labels are table, topic, result and
// code: never a tenant, an event or a key.
class RelayMetrics : public RelayEvents {
 public:
  RelayMetrics(MetricsRegistry& registry, std::string table, TopicLabels labels = TopicLabels());

  void OnClaimed(const std::vector<OutboxRow>& rows) override;
  void OnRow(const RowEvent& event) override;
  void OnShards(const std::vector<int>& held, int of) override;

 private:
  struct Topic {
    prometheus::Counter* enqueued;
    prometheus::Counter* dead;
    prometheus::Counter* succeeded;
    prometheus::Counter* failed;
    prometheus::Histogram* success_latency;
    prometheus::Histogram* failure_latency;
    prometheus::Histogram* to_publish;
  };
  Topic& Of(const std::string& name);
  prometheus::Counter& Retries(std::string_view code);

  MetricsRegistry& registry_;
  const std::string table_;
  TopicLabels labels_;
  prometheus::Gauge* leader_;
  prometheus::Counter* conflicts_;
  prometheus::Counter* dedup_hits_;
  prometheus::Gauge* held_;
  prometheus::Histogram* retry_delay_;
  std::map<std::string, Topic> topics_;  // by label, resolved once
  std::map<std::string, prometheus::Counter*, std::less<>> retries_;
};

}  // namespace lockstep::publisher
