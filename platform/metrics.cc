#include "platform/metrics.h"

#include <prometheus/text_serializer.h>

namespace lockstep {

const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

prometheus::Counter& CounterOf(MetricsRegistry& registry, const char* name, const char* help,
                               const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Gauge& GaugeOf(MetricsRegistry& registry, const char* name, const char* help,
                           const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Histogram& HistogramOf(MetricsRegistry& registry, const char* name, const char* help,
                                   const Labels& labels,
                                   const prometheus::Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

std::string RenderMetrics(const MetricsRegistry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace lockstep
