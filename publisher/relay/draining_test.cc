#include "publisher/relay/draining.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep::publisher {
namespace {

class DrainingTest : public ::testing::Test {
 protected:
  // Returns once the wait has begun, as the relay would see it.
  std::future<absl::Status> Wait() {
    std::promise<void> begun;
    auto waiter =
        std::async(std::launch::async, [&] { return draining_.Wait([&] { begun.set_value(); }); });
    begun.get_future().wait();
    return waiter;
  }

  Draining draining_{"shop.outbox"};
};

TEST_F(DrainingTest, OneEmptyRoundIsNotEnoughForItMayHaveBegunBeforeTheRowsWereThere) {
  draining_.FoundNothing();
  EXPECT_FALSE(draining_.Awaited());
  auto waiter = Wait();
  draining_.FoundNothing();
  EXPECT_TRUE(draining_.Awaited());
  draining_.FoundRows();
  draining_.FoundNothing();
  EXPECT_FALSE(draining_.Awaited());
  EXPECT_TRUE(waiter.get().ok());
}

TEST_F(DrainingTest, SaysWhyNothingGoesOn) {
  auto waiter = Wait();
  draining_.Stuck(absl::UnavailableError("the bus is away"));
  draining_.Stuck(absl::UnavailableError("the bus is away still"));
  EXPECT_EQ(waiter.get().message(), "shop.outbox was not drained: the bus is away still");
}

TEST_F(DrainingTest, LetsGoOfThoseWhoWaitWhenTheRelayEnds) {
  auto waiter = Wait();
  draining_.FoundNothing();
  draining_.GiveUp();
  EXPECT_EQ(waiter.get().message(), "shop.outbox was not drained: it was stopped");
}

}  // namespace
}  // namespace lockstep::publisher
