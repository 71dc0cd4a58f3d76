#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "platform/daemon/http_server.h"
#include "platform/daemon/service_thread.h"
#include "tests/support/service_stress.h"

namespace lockstep {
namespace {

void AwaitRounds(const std::atomic<int>& rounds, int wanted) {
  while (rounds < wanted) std::this_thread::yield();  // or ctest ends it
}

TEST(Ticker, GoesRoundUntilItIsStoppedWhateverARoundThrows) {
  std::atomic<int> rounds = 0;
  Ticker ticker(Millis(1), [&] {
    if (++rounds == 2) throw std::runtime_error("a bad round");
  });
  ASSERT_TRUE(ticker.Start().ok());
  AwaitRounds(rounds, 4);
  ticker.Stop();
  const int then = rounds;
  std::this_thread::yield();
  EXPECT_EQ(rounds, then);
}

TEST(Ticker, HasTheLifeOfAService) {
  testing::StressService([] { return std::make_unique<Ticker>(Millis(1), [] {}); });
}

TEST(HttpServer, HasTheLifeOfAService) {
  testing::StressService([] { return std::make_unique<HttpServer>(HttpOptions{}); }, nullptr, 3);
}

}  // namespace
}  // namespace lockstep
