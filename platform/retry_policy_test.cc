#include "platform/retry_policy.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Jitter = RetryPolicy::Jitter;

struct Curve {
  const char* name;
  RetryPolicy policy;
  int attempt;
  double random;
  int64_t expected_ms;
};

const RetryPolicy kDispatch{.base = Millis(1000), .cap = Millis(60'000)};
const RetryPolicy kMinutes{.base = Millis(60'000),
                           .cap = Millis(3'600'000),
                           .jitter = Jitter::kProportional,
                           .jitter_amount = 0.3};
const RetryPolicy kHalfSecond{.base = Millis(500),
                              .cap = Millis(300'000),
                              .jitter = Jitter::kProportional,
                              .jitter_amount = 0.3};
const RetryPolicy kPoll{.base = Millis(250), .cap = Millis(30'000), .jitter = Jitter::kFull};

class RetryCurve : public ::testing::TestWithParam<Curve> {};

TEST_P(RetryCurve, IsReproduced) {
  const Curve& curve = GetParam();
  EXPECT_EQ(curve.policy.Delay(curve.attempt, curve.random).count(), curve.expected_ms);
}

INSTANTIATE_TEST_SUITE_P(
    Table, RetryCurve,
    ::testing::Values(Curve{"first", kDispatch, 1, 0, 1000}, Curve{"second", kDispatch, 2, 0, 2000},
                      Curve{"jitter is added", kDispatch, 3, 0.5, 4100},
                      Curve{"sixth", kDispatch, 6, 0, 32'000},
                      Curve{"the cap holds, jitter on top", kDispatch, 7, 1, 60'200},
                      Curve{"far out", kDispatch, 10'000, 0, 60'000},
                      Curve{"minutes, low", kMinutes, 1, 0, 42'000},
                      Curve{"minutes, middle", kMinutes, 2, 0.5, 120'000},
                      Curve{"minutes, capped high", kMinutes, 9, 1, 4'680'000},
                      Curve{"half seconds", kHalfSecond, 1, 0.5, 500},
                      Curve{"half seconds, capped low", kHalfSecond, 20, 0, 210'000},
                      Curve{"full jitter", kPoll, 3, 0.5, 500},
                      Curve{"full jitter can be nothing", kPoll, 3, 0, 0}));

TEST(RetryPolicy, IsExhaustedAtItsLast) {
  RetryPolicy policy{.max_attempts = 3};
  EXPECT_FALSE(policy.Exhausted(2));
  EXPECT_TRUE(policy.Exhausted(3));
  policy.max_attempts = 0;
  EXPECT_FALSE(policy.Exhausted(1'000'000));
}

TEST(Backoff, GrowsUntilReset) {
  Backoff backoff(kDispatch, [] { return 0.0; });
  EXPECT_EQ(backoff.Next(), Millis(1000));
  EXPECT_EQ(backoff.Next(), Millis(2000));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), Millis(1000));
}

}  // namespace
}  // namespace lockstep
