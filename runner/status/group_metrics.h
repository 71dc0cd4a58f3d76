#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/metrics.h"
#include "runner/batch/batch.h"
#include "runner/message/inbound.h"
#include "runner/status/group_counts.h"

namespace lockstep::runner {

// The metrics of one group, each handle resolved once. Safe from any thread; nothing here queries
// a database.
class GroupMetrics {
 public:
  GroupMetrics(MetricsRegistry& registry, const std::string& group);

  void Delivered(int64_t messages) { Count({.deliveries = messages}); }
  void Committed(std::span<Inbound* const> items, const BatchResult& result, WallTime now,
                 double transaction_seconds);
  void Failed() { Count({.failures = 1}); }
  void Acked(int64_t ok, int64_t failed) { Count({.acks = ok, .ack_failures = failed}); }
  void Nacked(int64_t messages) { Count({.nacks = messages}); }
  void OffsetSaved(bool ok) { Count({.offsets_saved = ok ? 1 : 0, .offsets_failed = ok ? 0 : 1}); }
  void OffsetLag(Millis lag);
  void Heartbeat(WallTime published);
  void Refresh(WallTime now);  // ages; called by a timer
  void Halted(bool halted) { halted_.Set(halted ? 1 : 0); }

  GroupCounts counts() const;
  int64_t handled() const { return counts().handled(); }
  WallTime last_commit() const { return last_commit_; }
  WallTime last_heartbeat() const { return last_heartbeat_; }
  Millis lag() const { return Millis(lag_ms_.load()); }
  // Seconds of the newest sample in each stage: occurred, published, received, committed.
  struct Stages {
    double occurred_to_published = 0, published_to_received = 0, received_to_committed = 0;
  };
  Stages stages() const;

 private:
  struct Stage {
    Stage(MetricsRegistry& registry, Labels labels, const char* name);
    void Note(WallTime::duration time);

    prometheus::Histogram& all;
    prometheus::Gauge& last;
    std::atomic<double> newest{0};
  };

  void Count(const GroupCounts& more);

  struct Exported {
    int64_t GroupCounts::*count;
    prometheus::Counter* counter;
  };
  std::vector<Exported> exported_;
  prometheus::Gauge& offset_lag_;
  prometheus::Gauge& heartbeat_age_;
  prometheus::Gauge& commit_age_;
  prometheus::Gauge& halted_;
  prometheus::Histogram& batch_;
  prometheus::Histogram& transaction_;
  Stage published_;
  Stage received_;
  Stage committed_;

  mutable std::mutex mu_;
  GroupCounts counts_;

  std::atomic<WallTime> last_commit_{WallTime()};
  std::atomic<WallTime> last_heartbeat_{WallTime()};
  std::atomic<int64_t> lag_ms_{0};
};

}  // namespace lockstep::runner
