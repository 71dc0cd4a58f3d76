#pragma once

#include <string>

#include "platform/clock.h"
#include "platform/metrics.h"
#include "runner/status/state_reader.h"

namespace prometheus {
class Counter;
class Gauge;
}  // namespace prometheus

namespace lockstep::runner {

// The gauges of one group that somebody has to go and look for: honest lag, what is in hand, what
// waits in the database. Set by StatusReporter; a scrape only reads them.
class GroupGauges {
 public:
  GroupGauges(MetricsRegistry& registry, const std::string& group);

  void SetLag(Millis lag);
  void SetCatchUp(double seconds);  // -1 = not in sight
  void SetInHand(int64_t events);
  void SetRecord(const GroupRecord& record, WallTime now);

 private:
  prometheus::Gauge& lag_;
  prometheus::Gauge& catch_up_;
  prometheus::Gauge& in_hand_;
  prometheus::Gauge& parked_keys_;
  prometheus::Gauge& parked_events_;
  prometheus::Gauge& version_lag_;
  prometheus::Gauge& dead_letters_;
  prometheus::Gauge& checkpoint_age_;
  prometheus::Counter& replays_;
  int64_t replays_seen_ = -1;  // the database counts from long before this process
};

}  // namespace lockstep::runner
