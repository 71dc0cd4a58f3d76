#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace lockstep {

// What every Prometheus client tells of its process, under the usual names (process_…), read from
// /proc at each call. What can't be read is left out.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace lockstep
