#include "platform/metrics.h"

#include <prometheus/text_serializer.h>

namespace lockstep {

std::string RenderMetrics(const MetricsRegistry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace lockstep
