#include "platform/retry_policy.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep {

Millis RetryPolicy::Delay(int attempt, double random) const {
  const double exponent = std::max(attempt, 1) - 1;
  const auto limit = static_cast<double>(cap.count());
  // pow() may overflow to infinity; min() brings it back.
  const double delay =
      std::min(static_cast<double>(base.count()) * std::pow(factor, exponent), limit);
  switch (jitter) {
    case Jitter::kAdditive:
      return Millis(std::llround(delay + jitter_amount * random));
    case Jitter::kProportional:
      return Millis(std::llround(delay * (1 - jitter_amount + 2 * jitter_amount * random)));
    case Jitter::kFull:
      return Millis(std::llround(delay * random));
  }
  return Millis(std::llround(delay));
}

Backoff::Random Backoff::DefaultRandom() {
  return [engine = std::mt19937_64(std::random_device{}())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

}  // namespace lockstep
