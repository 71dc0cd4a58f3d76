#pragma once

#include <functional>
#include <utility>

#include "platform/clock.h"

namespace lockstep {

// How long to wait before try n+1, everywhere in Lockstep: min(base * factor^(n-1), cap), then
// jitter. A pure function of (policy, attempt, random), so that tests can reproduce whole curves.
struct RetryPolicy {
  enum class Jitter {
    kAdditive,      // delay + uniform(0, jitter_amount ms)
    kProportional,  // delay * uniform(1 - jitter_amount, 1 + jitter_amount)
    kFull,          // uniform(0, delay)
  };

  int max_attempts = 25;  // 0 = without end
  Millis base{1000};
  double factor = 2;
  Millis cap{60'000};
  Jitter jitter = Jitter::kAdditive;
  double jitter_amount = 200;  // milliseconds for kAdditive, a fraction for kProportional

  // The wait after the `attempt`-th failure (1 is the first). `random` is uniform in [0, 1).
  Millis Delay(int attempt, double random) const;
  bool Exhausted(int attempts) const { return max_attempts > 0 && attempts >= max_attempts; }
};

// Counts failures of something that is tried again (a connection, a stream) and says how long to
// wait. Owned by one thread.
class Backoff {
 public:
  using Random = std::function<double()>;

  explicit Backoff(RetryPolicy policy, Random random = DefaultRandom())
      : policy_(policy), random_(std::move(random)) {}

  Millis Next() { return policy_.Delay(++attempt_, random_()); }
  void Reset() { attempt_ = 0; }
  int attempts() const { return attempt_; }

  // Uniform in [0, 1), seeded by the machine.
  static Random DefaultRandom();

 private:
  RetryPolicy policy_;
  Random random_;
  int attempt_ = 0;
};

}  // namespace lockstep
