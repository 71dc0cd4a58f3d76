#pragma once

#include <atomic>
#include <span>
#include <string>

#include "platform/clock.h"
#include "platform/metrics.h"
#include "runner/batch/batch.h"
#include "runner/message/inbound.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace lockstep::runner {

// Counts since the start, for the status page.
struct GroupCounts {
  int64_t deliveries = 0, applied = 0, superseded = 0, ignored = 0, duplicates = 0, parked = 0,
          released = 0, gaps = 0, dead = 0, acks = 0, ack_failures = 0, nacks = 0, batches = 0,
          failures = 0;
};

// The metrics of one group, each handle resolved once. Safe from any thread; nothing here queries
// a database.
class GroupMetrics {
 public:
  GroupMetrics(MetricsRegistry& registry, const std::string& group);

  void Delivered(int64_t count);
  void Committed(std::span<Inbound* const> items, const BatchResult& result, WallTime now,
                 double transaction_seconds);
  void Failed();
  void Acked(int64_t ok, int64_t failed);
  void Nacked(int64_t count);
  void Heartbeat(WallTime published);
  void OffsetSaved(bool ok);
  void OffsetLag(Millis lag);
  void Refresh(WallTime now);  // ages; called by a timer
  void Halted(bool halted);

  GroupCounts counts() const;
  WallTime last_commit() const { return last_commit_; }
  WallTime last_heartbeat() const { return last_heartbeat_; }
  // Seconds of the newest sample in each stage: occurred, published, received, committed.
  struct Stages {
    double occurred_to_published = 0, published_to_received = 0, received_to_committed = 0;
  };
  Stages stages() const;
  Millis lag() const { return Millis(lag_ms_.load()); }
  int64_t handled() const { return handled_; }  // messages brought to an end since the start

 private:
  struct Handles;
  struct Totals {
    std::atomic<int64_t> deliveries{0}, applied{0}, superseded{0}, ignored{0}, duplicates{0},
        parked{0}, released{0}, gaps{0}, dead{0}, acks{0}, ack_failures{0}, nacks{0}, batches{0},
        failures{0};
  };

  std::shared_ptr<const Handles> handles_;  // shared only so that Handles may stay unknown here
  Totals totals_;
  std::atomic<WallTime> last_commit_{WallTime()};
  std::atomic<WallTime> last_heartbeat_{WallTime()};
  std::atomic<int64_t> lag_ms_{0};
  std::atomic<double> to_published_{0}, to_received_{0}, to_committed_{0};
  std::atomic<int64_t> handled_{0};
};

}  // namespace lockstep::runner
