#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace lockstep::testing {

// Whether the condition comes to hold. Looks again and again, but no longer than `patience`, so
// that what never happens fails its test instead of hanging it.
inline bool Eventually(const std::function<bool()>& condition,
                       std::chrono::seconds patience = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace lockstep::testing
