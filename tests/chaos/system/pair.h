#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/chaos/system/cluster.h"
#include "tests/chaos/system/gate.h"

namespace lockstep::chaos {

// A primary, and a standby that follows it by streaming replication, asynchronously. At a failover
// the standby is cut off for a while, the primary ends at once and for good, and the standby takes
// its place: what has committed meanwhile is gone. Then a new standby is made. Of the main thread.
class Pair {
 public:
  Pair(const std::string& folder, const std::string& bad_machine);

  Cluster& primary() { return *primary_; }
  // Makes the standby and waits for it.
  void Follow();
  void Tick();

  // Null unless it follows.
  Cluster* standby() { return state_ == State::kFollowing ? standby_.get() : nullptr; }
  // REQUIRES: there is a standby.
  void FailOver(Millis lag);
  bool failing() const { return state_ != State::kCopying && state_ != State::kFollowing; }
  int failovers() const { return failovers_; }
  // Where to find the new primary.
  void OnFailover(std::function<void(int port)> call) { on_failover_ = std::move(call); }

  bool StopForGood(Millis limit);
  int starts() const { return primary_->starts() + standby_->starts(); }
  int out_of_space() const { return primary_->out_of_space() + standby_->out_of_space(); }

 private:
  enum class State { kCopying, kFollowing, kFailing, kLagging, kCrashing, kPromoting };

  void Copy();

  std::unique_ptr<Cluster> primary_, standby_;
  std::unique_ptr<Gate> replication_;
  std::unique_ptr<Child> copy_;
  State state_ = State::kCopying;
  Millis lag_{};
  SteadyTime next_;  // when the state ends, or is looked at again
  SteadyTime failing_;
  int failovers_ = 0;
  std::function<void(int port)> on_failover_;
};

}  // namespace lockstep::chaos
