#include "publisher/relay/settlement.h"

#include <gtest/gtest.h>

#include <memory>

namespace lockstep::publisher {
namespace {

class SettlementTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const OutboxRow> Row(int attempts = 0) {
    OutboxRow row;
    row.sequence = 7;
    row.attempts = attempts;
    return std::make_shared<const OutboxRow>(row);
  }

  RelayEvents events_;
  Settlement settlement_{"me", events_};
  const SteadyTime start_{std::chrono::hours(1)};
};

TEST_F(SettlementTest, SuccessesGatherForAMomentAfterTheFirst) {
  settlement_.Published(Row(), "1", start_);
  settlement_.Published(Row(), "2", start_ + Millis(1));
  EXPECT_EQ(settlement_.Left(start_), Settlement::kGather);
  EXPECT_EQ(settlement_.Left(start_ + Millis(1)), Settlement::kGather - Millis(1));
  EXPECT_EQ(settlement_.Left(start_ + Settlement::kGather), Millis(0));
  EXPECT_EQ(settlement_.Left(start_ + Millis(1'000)), Millis(0));
}

TEST_F(SettlementTest, WhatOthersWaitForDoesNotGather) {
  settlement_.Published(Row(), "1", start_);
  EXPECT_FALSE(settlement_.urgent());
  settlement_.Failed(Row(), {}, /*frees_followers=*/false);
  EXPECT_TRUE(settlement_.urgent());
  EXPECT_EQ(settlement_.Left(start_), Millis(0));
}

TEST_F(SettlementTest, NorDoesASuccessBehindWhichRowsMayBeHeld) {
  settlement_.Published(Row(/*attempts=*/1), "1", start_);
  EXPECT_TRUE(settlement_.urgent());
  EXPECT_EQ(settlement_.Left(start_), Millis(0));
}

}  // namespace
}  // namespace lockstep::publisher
