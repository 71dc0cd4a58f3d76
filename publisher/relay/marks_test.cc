#include "publisher/relay/marks.h"

#include <gtest/gtest.h>

#include <memory>

namespace lockstep::publisher {
namespace {

class MarksTest : public ::testing::Test {
 protected:
  static RowPtr Row(int attempts = 0) {
    OutboxRow row;
    row.sequence = 7;
    row.attempts = attempts;
    return std::make_shared<const OutboxRow>(row);
  }

  RelayEvents events_;
  Marks marks_{"me", events_};
  const SteadyTime start_{std::chrono::hours(1)};
};

TEST_F(MarksTest, SuccessesGatherForAMomentAfterTheFirst) {
  marks_.Published(Row(), "1", start_);
  marks_.Published(Row(), "2", start_ + Millis(1));
  EXPECT_EQ(marks_.Left(start_), Marks::kGather);
  EXPECT_EQ(marks_.Left(start_ + Millis(1)), Marks::kGather - Millis(1));
  EXPECT_EQ(marks_.Left(start_ + Marks::kGather), Millis(0));
  EXPECT_EQ(marks_.Left(start_ + Millis(1'000)), Millis(0));
}

TEST_F(MarksTest, WhatOthersWaitForDoesNotGather) {
  marks_.Published(Row(), "1", start_);
  EXPECT_FALSE(marks_.urgent());
  marks_.Failed({.row = Row()});
  EXPECT_TRUE(marks_.urgent());
  EXPECT_EQ(marks_.Left(start_), Millis(0));
}

TEST_F(MarksTest, NorDoesASuccessBehindWhichRowsMayBeHeld) {
  marks_.Published(Row(/*attempts=*/1), "1", start_);
  EXPECT_TRUE(marks_.urgent());
  EXPECT_EQ(marks_.Left(start_), Millis(0));
}

}  // namespace
}  // namespace lockstep::publisher
