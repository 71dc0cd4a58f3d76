#include "runner/status/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/status/group_view.h"
#include "web/attention.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using std::chrono::seconds;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    status_.name = "feed";
    status_.state = GroupState::kRunning;
    status_.database_ok = status_.last_turn = status_.last_commit = now_;
    status_.lanes = {{.lane = 0}, {.lane = 1}};
  }
  // Lane 1 has had work for `age`, of a message published a second before it came.
  void Wait(Millis age) {
    status_.lanes[1].queued = 3;
    status_.lanes[1].oldest_received = now_ - age;
    status_.lanes[1].oldest_published = now_ - age - seconds(1);
  }
  HonestLag Lag() { return LagOf(status_, now_, options_); }

  HealthOptions options_;
  WallTime now_{seconds(1'000'000)};
  GroupStatus status_;
};

TEST_F(HealthTest, IdleReadsAsZero) {
  status_.last_commit = now_ - seconds(3'600);
  EXPECT_EQ(Lag().lag, Millis(0));
  status_.last_heartbeat = now_ - seconds(4);
  EXPECT_EQ(Lag().lag, Millis(0));
  EXPECT_THAT(NotReady(status_, now_, options_), IsEmpty());
}

TEST_F(HealthTest, StuckReadsAsStuckAlthoughOtherLanesGoOnAndHeartbeatsCome) {
  Wait(seconds(90));
  status_.last_heartbeat = now_;
  status_.lanes[0].last_commit = now_;
  EXPECT_EQ(Lag().lag, seconds(91));
  EXPECT_THAT(NotReady(status_, now_, options_),
              ElementsAre(HasSubstr("lane 1 has 3 messages in hand and has committed nothing")));
}

TEST_F(HealthTest, ALaneThatCommitsIsNotStuckHoweverOldItsWork) {
  Wait(seconds(900));
  status_.lanes[1].last_commit = now_ - seconds(1);
  EXPECT_FALSE(IsStuck(status_.lanes[1], now_, options_));
  EXPECT_THAT(NotReady(status_, now_, options_), IsEmpty());
  EXPECT_EQ(Lag().lag, seconds(901));
}

TEST_F(HealthTest, ALaneIsNotStuckBecauseItWasIdleForLong) {
  Wait(seconds(2));
  status_.lanes[1].last_commit = now_ - seconds(3'600);
  EXPECT_FALSE(IsStuck(status_.lanes[1], now_, options_));
}

TEST_F(HealthTest, HeartbeatsThatStopMeanBehindSinceThen) {
  status_.last_heartbeat = now_ - seconds(120);
  EXPECT_EQ(Lag().lag, seconds(120));
  EXPECT_THAT(Lag().basis, HasSubstr("no heartbeat"));
  EXPECT_THAT(NotReady(status_, now_, options_), IsEmpty()) << "the runner itself is well";
}

TEST_F(HealthTest, WithoutAStreamTheLagGrowsFromWhereItWasCaughtUp) {
  status_.stream = "UNAVAILABLE";
  status_.caught_up = now_ - seconds(40);
  status_.last_commit = now_ - seconds(50);
  EXPECT_EQ(Lag().lag, seconds(40));
  EXPECT_THAT(NotReady(status_, now_, options_), ElementsAre(HasSubstr("no stream from Pub/Sub")));
}

TEST_F(HealthTest, ReadinessOutlivesALostDatabaseByTheGracePeriod) {
  status_.database_error = "connection refused";
  status_.database_ok = now_ - seconds(29);
  EXPECT_THAT(NotReady(status_, now_, options_), IsEmpty());
  status_.database_ok = now_ - seconds(31);
  EXPECT_THAT(NotReady(status_, now_, options_),
              ElementsAre(HasSubstr("the database has not answered for 31s: connection refused")));
}

TEST_F(HealthTest, ALoopThatStandsStillIsNotReady) {
  status_.last_turn = now_ - seconds(91);
  EXPECT_THAT(NotReady(status_, now_, options_), ElementsAre(HasSubstr("stood still for 91s")));
}

TEST_F(HealthTest, AHaltedGroupSaysWhy) {
  status_.state = GroupState::kHalted;
  status_.reason = "column title does not exist";
  EXPECT_THAT(NotReady(status_, now_, options_),
              ElementsAre("group feed: halted: column title does not exist"));
}

// A group with nothing but this in its way.
GroupStatus With(Obstacle obstacle, GroupStatus well, WallTime now) {
  switch (obstacle) {
    case Obstacle::kStarting:
      well.state = GroupState::kStarting;
      break;
    case Obstacle::kWaiting:
      well.state = GroupState::kWaiting;
      break;
    case Obstacle::kHalted:
      well.state = GroupState::kHalted;
      break;
    case Obstacle::kStopped:
      well.state = GroupState::kStopped;
      break;
    case Obstacle::kStream:
      well.stream = "UNAVAILABLE";
      break;
    case Obstacle::kDatabase:
      well.database_error = "connection refused";
      well.database_ok = now - seconds(31);
      break;
    case Obstacle::kLoop:
      well.last_turn = now - seconds(91);
      break;
    case Obstacle::kLane:
      well.lanes[0].queued = 1;
      well.lanes[0].oldest_received = now - seconds(90);
      break;
  }
  return well;
}

TEST_F(HealthTest, WhateverTurnsReadinessOffHasANoteThatNamesTheGroup) {
  for (const Obstacle obstacle : kObstacles) {
    SCOPED_TRACE(Name(obstacle));
    const GroupStatus status = With(obstacle, status_, now_);
    const auto reasons = NotReady(status, now_, options_);
    ASSERT_EQ(reasons.size(), 1U);
    EXPECT_EQ(ObstaclesOf(status, now_, options_)[0].what, obstacle);
    const std::string state = StateWord(status, Millis(0), now_, options_);
    const nlohmann::json notes =
        web::Attention({{"role", "runner"},
                        {"reasons", reasons},
                        {"groups", {ToJson({status, now_, {}, state}, options_)}}});
    ASSERT_EQ(notes.size(), 1U) << notes.dump(1);
    EXPECT_THAT(notes[0]["title"].get<std::string>(), ::testing::ContainsRegex("[Gg]roup feed"))
        << notes;
  }
}

}  // namespace
}  // namespace lockstep::runner
