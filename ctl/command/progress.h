#pragma once

#include <unistd.h>

#include <string>

#include "platform/clock.h"
#include "platform/pace.h"

namespace lockstep::ctl {

// "1h12m", "3m20s", "12s", "850ms": for people, in two units at most.
std::string About(Millis duration);

// Of counts that runners report each second, from nothing to a total.
inline constexpr Pace::Options kReplayPace{.longest = 60, .in_steps = true};

// "[#######.............]  35%  350000 of about 1000000  52100/s  12s left"
std::string ProgressLine(int64_t done, int64_t total, const Pace& pace);

// Shows progress on stderr: on a terminal a line that moves, elsewhere a line every two seconds;
// with `json` an object per line, for scripts. Owned by one thread.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(bool json) : json_(json) {}
  ~ProgressPrinter() { EndLine(); }

  void Show(int64_t done, int64_t total, bool at_once = false);  // total 0 = not known
  // What happens, in a sentence; not with `json`.
  void Say(const std::string& text);
  // What is waited for, in the place of the bar.
  void Wait(const std::string& text);
  void EndLine();

 private:
  bool Due(bool at_once);
  void Print(const std::string& line);

  const bool json_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const SteadyTime began_ = Clock::System().Steady();
  Pace pace_{kReplayPace};
  double now_ = 0;
  double shown_ = -10;
  bool open_line_ = false;
};

}  // namespace lockstep::ctl
