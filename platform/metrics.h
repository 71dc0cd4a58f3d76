#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string>

namespace lockstep {

// The process's metrics. Handles are resolved once, where a class is built, and updating one takes
// no lock of ours and no query: a scrape only reads what is there.
using MetricsRegistry = prometheus::Registry;
using prometheus::Labels;

// Upper bounds in seconds, for what takes between a millisecond and five minutes.
inline const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

// The metric of that name and these labels; the same one again if it is there already.
inline prometheus::Counter& CounterOf(MetricsRegistry& registry, const char* name, const char* help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}
inline prometheus::Gauge& GaugeOf(MetricsRegistry& registry, const char* name, const char* help,
                                  const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}
inline prometheus::Histogram& HistogramOf(
    MetricsRegistry& registry, const char* name, const char* help, const Labels& labels,
    const prometheus::Histogram::BucketBoundaries& buckets = kSecondsBuckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

// The text that /metrics answers.
inline std::string RenderMetrics(const MetricsRegistry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace lockstep
