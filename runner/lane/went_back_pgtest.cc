// An event that is new and yet older than what is applied is acked unapplied, and never in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WentBack : public ::testing::Test {
 protected:
  WentBack() { ::testing::internal::CaptureStderr(); }
  ~WentBack() override {
    if (!taken_) Log();
  }

  std::string Log() {
    taken_ = true;
    return ::testing::internal::GetCapturedStderr();
  }

  void Publish(GroupWorld& world, const std::vector<TestEvent>& events) {
    for (const TestEvent& event : events) {
      world.Publish({event});
      ASSERT_TRUE(world.AwaitDrained());
    }
  }

 private:
  bool taken_ = false;
};

// Deleted at the source and made anew from version 1, when its outbox has forgotten the old ones.
TEST_F(WentBack, ANewEventBelowTheAppliedVersionIsCountedAndLogged) {
  GroupWorld world;
  const auto group = world.NewGroup();
  Publish(world, {{.version = 1}, {.version = 2}, {.version = 1, .event_id = Uuid(7)}});
  EXPECT_TRUE(world.Await([&] { return group->status().counts.went_back == 1; }));
  EXPECT_TRUE(world.Await([&] { return group->status().counts.superseded == 1; }));
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 2);
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("older than what is applied"));
  EXPECT_THAT(log, HasSubstr("event_id=" + Uuid(7)));
}

TEST_F(WentBack, WhatComesAgainIsNot) {
  GroupWorld world;
  const auto group = world.NewGroup();
  Publish(world, {{.version = 1}, {.version = 2}, {.version = 1}});
  EXPECT_TRUE(world.Await([&] { return group->status().counts.duplicates == 1; }));
  EXPECT_EQ(group->status().counts.went_back, 0);
  EXPECT_THAT(Log(), Not(HasSubstr("older than what")));
}

// Without ordering keys a later version may come first, and win.
TEST_F(WentBack, WhatWasOvertakenOnItsWayIsNot) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  Publish(world, {{.version = 2, .ordered = false}, {.version = 1, .ordered = false}});
  EXPECT_TRUE(world.Await([&] { return group->status().counts.superseded == 1; }));
  EXPECT_EQ(group->status().counts.went_back, 0);
  EXPECT_THAT(Log(), Not(HasSubstr("older than what")));
}

}  // namespace
}  // namespace lockstep::runner
