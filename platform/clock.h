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
  virtual WallTime Now() const = 0;
  virtual SteadyTime Steady() const = 0;

  // The machine's clocks; lives as long as the process.
  static const Clock& System();
};

}  // namespace lockstep
