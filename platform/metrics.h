#pragma once

#include <prometheus/registry.h>

#include <memory>
#include <string>

namespace lockstep {

// The process's metrics. Handles are resolved once, where a class is built, and updating one takes
// no lock of ours and no query: a scrape only reads what is there.
using MetricsRegistry = prometheus::Registry;

// The text that /metrics answers.
std::string RenderMetrics(const MetricsRegistry& registry);

}  // namespace lockstep
