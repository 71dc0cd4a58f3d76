#pragma once

#include <deque>
#include <optional>

namespace lockstep {

// How fast a number moves and when it arrives somewhere, out of looks at it now and then: the one
// estimate of rates and times left, on the status page and in lockstepctl. Owned by one thread.
class Pace {
 public:
  struct Options {
    // It is reckoned over the last half of the time, within these limits in seconds: neither the
    // start nor a moment's noise shall spoil it.
    double shortest = 10;
    double longest = 10;
    // The number grows in steps and may pause. What came before the first step, and a standstill of
    // the shortest time, are no part of the pace; a step that is a little late is no pause.
    bool in_steps = false;
  };
  Pace() = default;
  explicit Pace(Options options) : options_(options) {}

  void Note(double seconds, double value);
  std::optional<double> per_second() const;  // none before there are two looks
  // Until it has moved by so much; none while it does not move that way.
  std::optional<double> SecondsFor(double way) const;

 private:
  struct Look {
    double seconds;
    double value;
  };

  Options options_;
  double began_ = 0;
  double moved_ = 0;
  std::deque<Look> looks_;  // those in the window, the oldest first
};

}  // namespace lockstep
