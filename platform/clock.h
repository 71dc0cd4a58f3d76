#pragma once

#include <chrono>

namespace lockstep {

using Millis = std::chrono::milliseconds;
using WallTime = std::chrono::system_clock::time_point;
using SteadyTime = std::chrono::steady_clock::time_point;

// Where time comes from. Code that decides by time takes a Clock, so that tests can set it
// (tests/support/fake_clock.h). Safe to call from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime Now() const { return std::chrono::system_clock::now(); }
  virtual SteadyTime Steady() const { return std::chrono::steady_clock::now(); }

  // The machine's clocks; lives as long as the process.
  static const Clock& System() {
    static const Clock clock;
    return clock;
  }
};

}  // namespace lockstep
