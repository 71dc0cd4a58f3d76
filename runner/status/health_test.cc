#include "runner/status/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::runner
