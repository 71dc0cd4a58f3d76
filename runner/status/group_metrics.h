#pragma once

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "platform/metrics.h"
#include "runner/batch/batch.h"
#include "runner/status/group_status.h"

namespace lockstep::runner {

// What a group counts and measures as it goes, for its status and its metrics, each handle of which
// is resolved once. Safe from any thread; nothing here queries a database.
class GroupMetrics {
 public:
  GroupMetrics(MetricsRegistry& registry, const std::string& group);

  void Count(const GroupCounts& more);
  // `newest`: whose offset was saved; null for a release, which saves none.
  void Committed(std::span<Inbound* const> items, const BatchResult& result, const Inbound* newest,
                 WallTime now, double transaction_seconds);
  void Heartbeat(WallTime published);

  int64_t handled() const;  // messages brought to an end
  void Fill(GroupStatus& status) const;

 private:
  struct Stage {
    Stage(MetricsRegistry& registry, const Labels& labels);
    void Note(WallTime::duration time);

    prometheus::Histogram& all;
    prometheus::Gauge& last;
  };

  std::vector<std::pair<int64_t GroupCounts::*, prometheus::Counter*>> exported_;
  prometheus::Histogram& batch_;
  prometheus::Histogram& transaction_;
  Stage published_;
  Stage received_;
  Stage committed_;

  mutable std::mutex mu_;
  GroupCounts counts_;
  WallTime last_commit_;
  WallTime last_heartbeat_;
  Millis lag_{0};
};

}  // namespace lockstep::runner
