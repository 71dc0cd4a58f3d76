#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "platform/clock.h"
#include "platform/log/log_repeats.h"

namespace lockstep::log {

// Which faults are going on, and how often each was met since it was last told. No thread of its
// own; safe from any.
class FaultLimit {
 public:
  struct Options {
    Millis first{10'000};  // until the repeats are told; then twice that, and so on,
    Millis longest{300'000};
    Millis over{60'000};  // not met for so long: the next is another fault
  };
  FaultLimit() : FaultLimit(Options()) {}
  explicit FaultLimit(Options options) : options_(options) {}

  void Restart();  // forgets what was counted

  // Whether it begins: then it is to be written. Else it is counted.
  bool Begins(const LineKind& kind, SteadyTime now);
  // Those whose repeats are to be told now; at SteadyTime::max() all.
  std::vector<RepeatLimit::Told> TakeDue(SteadyTime now);

 private:
  struct Fault {
    SteadyTime told, met;
    Millis wait;
    int64_t times = 0;
  };
  const Options options_;
  std::mutex mu_;
  std::map<LineKind, Fault> faults_;
};

}  // namespace lockstep::log
