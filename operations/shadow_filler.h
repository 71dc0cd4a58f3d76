#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "operations/rebuild.h"
#include "platform/metrics.h"
#include "runner/group/group.h"

namespace lockstep::operations {

// The group that fills a rebuild's shadow slot, and what is known of its progress. On the rebuild's
// thread; Admit alone is called on the lanes' threads.
class ShadowFiller {
 public:
  ShadowFiller(const Rebuild::Parts& parts, const state::RebuildRow& row,
               postgres::Connection& connection)
      : parts_(parts), row_(row), connection_(connection) {}
  ~ShadowFiller() { Stop(); }

  // A new start takes everything again.
  absl::Status Start();
  void Stop() { group_.reset(); }

  // From now on only what this generation has seen is applied.
  void FollowOnly(int generation) { follow_ = generation; }

  // REQUIRES: started.
  int64_t done() const;
  absl::StatusOr<int64_t> Total();  // about; 0 = not known
  bool NothingComes();              // no event for so long; heartbeats go on
  bool NearlyThere() const;         // worth a look whether it is all there
  absl::Status Halted() const;
  // The columns of a shadow table that get the time of the write: two builds differ in them.
  const std::set<std::string>& write_times(const std::string& table) { return write_times_[table]; }

 private:
  std::vector<bool> Admit(postgres::Connection& connection,
                          std::span<runner::Inbound* const> items) const;

  const Rebuild::Parts& parts_;
  const state::RebuildRow& row_;
  postgres::Connection& connection_;
  const state::Schema schema_{parts_.state_schema};
  const state::Inbox inbox_{schema_};
  const ConsumerGroup live_{parts_.options.name};
  const ConsumerGroup name_ = state::Rebuilds(schema_, live_).shadow_group();
  std::map<std::string, std::set<std::string>> write_times_;
  std::unique_ptr<MetricsRegistry> metrics_;
  std::unique_ptr<runner::GroupEnvironment> environment_;
  std::unique_ptr<runner::Group> group_;
  std::atomic<int> follow_{0};
  WallTime older_;  // what was published before is admitted although the live slot lacks it
  int64_t before_ = 0;
  int64_t total_ = 0;
  int64_t last_count_ = -1;
  SteadyTime last_event_;
};

}  // namespace lockstep::operations
