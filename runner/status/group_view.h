#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/metrics.h"
#include "runner/status/group_status.h"
#include "runner/status/health.h"
#include "runner/status/state_reader.h"
#include "web/history.h"

namespace lockstep::runner {

// All that is told of a group: what it knows of itself, what that means, what the database says,
// and how fast it goes. The API and the gauges are made of this.
struct GroupView {
  GroupStatus status;
  WallTime now;
  HonestLag lag;
  std::string state;  // in one word
  GroupRecord record{};
  web::History::Outlook outlook{};
};

// The group's part of the status document (web/README.md).
nlohmann::json ToJson(const GroupView& view, const HealthOptions& health);

// The gauges of one group, which somebody has to go and look for: honest lag, ages, what is in
// hand, what waits in the database. A scrape only reads them.
class GroupGauges {
 public:
  GroupGauges(MetricsRegistry& registry, const std::string& group);

  void Set(const GroupView& view);

 private:
  std::vector<prometheus::Gauge*> gauges_;
  prometheus::Counter& replays_;
  std::optional<int64_t> replays_seen_;  // the database counts from long before this process
};

}  // namespace lockstep::runner
