#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ctl/group_context.h"
#include "platform/clock.h"

namespace lockstep::ctl {

// "1h12m", "3m20s", "12s", "850ms": for people, in two units at most.
std::string About(Millis duration);

// Rate and remaining time out of counts that are looked at now and then: over the last half of the
// time, ten seconds at least and a minute at most, so that neither the start nor a moment's noise
// spoils the estimate. Owned by one thread.
class Pace {
 public:
  void Note(double seconds, int64_t done);  // since the start; both only grow
  double per_second() const;
  std::optional<double> SecondsFor(int64_t left) const;  // none while nothing moves

 private:
  struct Look {
    double seconds;
    int64_t done;
  };
  static constexpr double kShortest = 10, kLongest = 60;  // no move for the shortest: a standstill
  static constexpr double kPause = 3;  // runners report each second: less is no pause
  double began_ = 0;                   // when the first was seen, or the first after a standstill
  double moved_ = 0;
  std::vector<Look> looks_;  // those at which it had moved, and pauses
};

// "[#######.............]  35%  350000 of about 1000000  52100/s  12s left"
std::string ProgressLine(int64_t done, int64_t total, const Pace& pace);

// Shows progress on stderr: on a terminal a line that moves, elsewhere a line every two seconds;
// with `json` an object per line, for scripts. Owned by one thread.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(bool json);
  ~ProgressPrinter() { EndLine(); }

  void Show(int64_t done, int64_t total, bool at_once = false);  // total 0 = not known
  // What happens, in a sentence; not with `json`.
  void Say(const std::string& text);
  // The same, in the place of the bar.
  void Wait(const std::string& text);
  void EndLine();

 private:
  bool Due(bool at_once);
  void Print(const std::string& line);

  const bool json_;
  const bool terminal_;
  const SteadyTime began_ = Clock::System().Steady();
  Pace pace_;
  double now_ = 0;
  double shown_ = -10;
  bool open_line_ = false;
};

// How much was done, out of what instances report: one that ends, and one that counts anew from
// nothing, take nothing away from it.
class HandledByInstances {
 public:
  void Note(const std::string& instance, int64_t handled);
  int64_t sum() const { return sum_; }

 private:
  std::map<std::string, int64_t> last_;
  int64_t sum_ = 0;
};

// Follows a reset until what it brought back is worked off: until `total` messages were handled
// under `epoch`, or the runners have had nothing to do for a while. Ends at once, with a sentence,
// when nobody runs.
absl::Status FollowReplay(RunnerContext& runner, const std::string& group, int64_t epoch,
                          int64_t total, bool json);

}  // namespace lockstep::ctl
