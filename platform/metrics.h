#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

namespace lockstep {

// The process's metrics. Handles are resolved once, where a class is built, and updating one takes
// no lock of ours and no query: a scrape only reads what is there.
using MetricsRegistry = prometheus::Registry;
using prometheus::Labels;

// Upper bounds in seconds, for what takes between a millisecond and five minutes.
extern const prometheus::Histogram::BucketBoundaries kSecondsBuckets;

// The metric of that name and these labels; the same one again if it is there already.
prometheus::Counter& CounterOf(MetricsRegistry& registry, const char* name, const char* help,
                               const Labels& labels);
prometheus::Gauge& GaugeOf(MetricsRegistry& registry, const char* name, const char* help,
                           const Labels& labels);
prometheus::Histogram& HistogramOf(
    MetricsRegistry& registry, const char* name, const char* help, const Labels& labels,
    const prometheus::Histogram::BucketBoundaries& buckets = kSecondsBuckets);

// The text that /metrics answers.
std::string RenderMetrics(const MetricsRegistry& registry);

}  // namespace lockstep
