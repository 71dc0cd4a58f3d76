#include "tests/chaos/system/call_verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>

namespace lockstep::chaos {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

SteadyTime At(int64_t ms) { return SteadyTime(Millis(ms)); }

// Calls of a key with five events, e1 to e5, a second apart.
class CallVerdictTest : public ::testing::Test {
 protected:
  CallVerdictTest() {
    for (int i = 1; i <= 5; ++i) due_[fmt::format("e{}", i)] = {"k", i, i};
  }

  CallNote& Call(int version, const std::string& answer = "yes", pid_t runner = 1) {
    const auto number = static_cast<int64_t>(notes_.size()) + 1;
    const std::string id = fmt::format("e{}", version);
    notes_.push_back({.number = number,
                      .arrived = number * 1000,
                      .runner = runner,
                      .event_id = id,
                      .key = "k",
                      .version = version,
                      .idempotency_key = id,
                      .answer = answer,
                      .answered = number * 1000 + 5,
                      .answered_before = number + 1});
    return notes_.back();
  }
  void CallAll() {
    for (int i = 1; i <= 5; ++i) Call(i);
  }
  void Hit(Blow::To to, int64_t ms, pid_t runner = 0) {
    blows_.push_back(
        {.to = to, .begin = At(ms), .end = At(ms), .what = "a blow", .runner = runner});
  }
  CallFindings Judge(int in_hand = 10) const { return JudgeCalls(notes_, due_, blows_, in_hand); }

  std::map<std::string, Due> due_;
  std::vector<CallNote> notes_;
  std::vector<Blow> blows_;
};

TEST_F(CallVerdictTest, FindsNothingWhereEachEventWasAcceptedOnceInOrder) {
  Call(1, "500");
  Call(1, "cut");
  CallAll();
  const CallFindings found = Judge();
  EXPECT_THAT(found.lost, IsEmpty());
  EXPECT_THAT(found.uncalled, IsEmpty());
  EXPECT_THAT(found.disordered, IsEmpty());
  EXPECT_THAT(found.unexplained, IsEmpty());
  EXPECT_EQ(found.repeated, 0);
}

TEST_F(CallVerdictTest, FindsAnEventThatNobodyAccepted) {
  CallAll();
  notes_.back().answer = "503";
  EXPECT_THAT(Judge().lost, SizeIs(1));
}

TEST_F(CallVerdictTest, FindsACallBeforeTheYesOfTheOneBefore) {
  Call(1);
  Call(2, "500");
  Call(3);
  EXPECT_THAT(Judge().disordered, SizeIs(1));
}

TEST_F(CallVerdictTest, FindsACallWhileTheOneBeforeIsUnderWay) {
  Call(1).answered_before = 3;
  Call(2);
  EXPECT_THAT(Judge().disordered, SizeIs(1));
}

TEST_F(CallVerdictTest, FindsOneThatWentBackAndDoesNotGoOnFromThere) {
  CallAll();
  Hit(Blow::To::kFailover, 5500);
  Call(3);
  Call(5);
  const CallFindings found = Judge();
  EXPECT_THAT(found.disordered, SizeIs(1));
  EXPECT_THAT(found.unexplained, IsEmpty());
}

TEST_F(CallVerdictTest, DoesNotCountWhatACallerThatHasHungUpLeftBehind) {
  CallAll();
  Call(2, "gone");
  const CallFindings found = Judge();
  EXPECT_THAT(found.disordered, IsEmpty());
  EXPECT_EQ(found.repeated, 0);
}

TEST_F(CallVerdictTest, ExplainsARepetitionByTheDeathOfWhoeverGotTheYes) {
  Call(1);
  Call(1, "yes", 2);
  EXPECT_THAT(Judge().unexplained, SizeIs(1));
  Hit(Blow::To::kRunner, 1500, 2);  // of another
  EXPECT_THAT(Judge().unexplained, SizeIs(1));
  Hit(Blow::To::kRunner, 1500, 1);
  EXPECT_THAT(Judge().unexplained, IsEmpty());
}

TEST_F(CallVerdictTest, ALostSessionExplainsNoRepetitionByTheProcessThatGotTheYes) {
  Hit(Blow::To::kDatabase, 1500);
  Call(1);
  Call(1);
  EXPECT_THAT(Judge().unexplained, SizeIs(1));
  notes_.back().runner = 2;
  EXPECT_THAT(Judge().unexplained, IsEmpty());
}

TEST_F(CallVerdictTest, AnAnswerThatArrivedIsNotLostByWhatBefellTheConsumerLater) {
  Call(1);
  Call(2);
  Call(3);
  Call(1);
  Hit(Blow::To::kAnswers, 3500);
  Hit(Blow::To::kConsumer, 1000);  // it answered 500
  EXPECT_THAT(Judge().unexplained, SizeIs(1));
  Hit(Blow::To::kAnswers, 1000);
  EXPECT_THAT(Judge().unexplained, IsEmpty());
}

TEST_F(CallVerdictTest, ABlowExplainsNoMoreThanWhatWasInHand) {
  CallAll();
  Hit(Blow::To::kRunner, 5500, 1);
  for (int i = 1; i <= 5; ++i) Call(i, "yes", 2);
  EXPECT_THAT(Judge(5).unexplained, IsEmpty());
  EXPECT_THAT(Judge(2).unexplained, SizeIs(3));
}

TEST_F(CallVerdictTest, NothingExplainsARepetitionThatTheInboxKnewOf) {
  Call(1);
  Hit(Blow::To::kFailover, 1500);
  Call(1).known = 'y';
  EXPECT_THAT(Judge().known, SizeIs(1));
}

TEST_F(CallVerdictTest, FindsCallsForWhatIsNotDueOrNotWhatTheySay) {
  Call(7);                            // nobody committed it
  Call(1).replay = true;              // the handler skips replays
  Call(1).idempotency_key = "other";  // not the event's
  Call(1).version = 2;                // nor this
  EXPECT_THAT(Judge().uncalled, SizeIs(5)) << "four, and a yes to the first";
}

TEST_F(CallVerdictTest, AnEventThatTheConsumerRefusesMustNotBeAccepted) {
  due_["e2"].refused = true;
  Call(1);
  Call(2, "422");
  EXPECT_THAT(Judge().uncalled, IsEmpty());
  notes_.back().answer = "yes";
  EXPECT_THAT(Judge().uncalled, SizeIs(1));
}

TEST(CallNotes, AreReadAsTheyWereWritten) {
  const std::string file = ::testing::TempDir() + "call_notes.tsv";
  CallNote first{.number = 1,
                 .arrived = 17,
                 .runner = 4,
                 .event_id = "e1",
                 .key = "k",
                 .version = 3,
                 .idempotency_key = "e1",
                 .replay = true,
                 .known = '?',
                 .answer = "yes",
                 .answered = 18};
  CallNote second = first;
  second.number = 2;
  std::ofstream(file) << ArrivalLine(first) << ArrivalLine(second) << AnswerLine(first);
  const auto notes = ReadCallNotes(file);
  std::remove(file.c_str());
  ASSERT_THAT(notes, SizeIs(2));
  EXPECT_EQ(ArrivalLine(notes[0]), ArrivalLine(first));
  EXPECT_EQ(AnswerLine(notes[0]), AnswerLine(first));
  EXPECT_EQ(notes[0].answered_before, 3) << "the second had arrived";
  EXPECT_EQ(notes[1].answer, "");
}

}  // namespace
}  // namespace lockstep::chaos
