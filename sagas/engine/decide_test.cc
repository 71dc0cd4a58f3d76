#include "sagas/engine/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "sagas/engine/attempt.h"
#include "sagas/testing/saga_test.h"

namespace lockstep::sagas {
namespace {

using testing::DefinitionOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kNow;
using testing::NewSaga;
using testing::StepOf;

std::vector<std::string> Begun(const Definition& definition, const Decision& decision) {
  std::vector<std::string> names;
  for (const auto& begin : decision.begin) {
    names.push_back((begin.undo ? "un" : "") +
                    definition.steps[static_cast<size_t>(begin.step)].name);
  }
  return names;
}

// A saga of three calls, at some point of its life.
class DecideTest : public ::testing::Test {
 protected:
  Decision Next(const std::set<int>& here = {}, WallTime now = kNow) {
    return Decide(definition_, saga_, now, here);
  }
  // Applies what is to be saved until nothing is.
  Decision Settle(const std::set<int>& here = {}, WallTime now = kNow) {
    for (int i = 0; i < 100; ++i) {
      Decision next = Next(here, now);
      if (!next.changes()) return next;
      Apply(next, saga_);
      if (saga_.ended()) return {};
    }
    ADD_FAILURE() << "it never settles";
    return {};
  }
  std::vector<std::string> Begun(const Decision& decision) {
    return sagas::Begun(definition_, decision);
  }
  StoredStep& At(int step) { return saga_.steps[static_cast<size_t>(step)]; }
  void Set(int step, StepState state) { At(step).state = state; }

  Definition definition_ = DefinitionOf({StepOf("a"), StepOf("b"), StepOf("c")});
  StoredSaga saga_ = NewSaga(definition_);
};

TEST_F(DecideTest, BeginsOneStepAfterAnother) {
  EXPECT_THAT(Begun(Next()), ElementsAre("a"));
  Set(0, StepState::kSucceeded);
  EXPECT_THAT(Begun(Next()), ElementsAre("b"));
  Set(1, StepState::kSkipped);
  EXPECT_THAT(Begun(Next()), ElementsAre("c"));
  Set(2, StepState::kInFlight);
  EXPECT_THAT(Begun(Next({2})), IsEmpty());
  Set(2, StepState::kSucceeded);
  ASSERT_TRUE(Next().saga.has_value());
  EXPECT_EQ(Next().saga->state, SagaState::kCompleted);
}

TEST_F(DecideTest, NeighboursOfOneTagRunSideBySide) {
  definition_ = DefinitionOf({StepOf("a"), StepOf("b"), StepOf("c"), StepOf("d")});
  definition_.steps[1].concurrency_tag = definition_.steps[2].concurrency_tag = "t";
  saga_ = NewSaga(definition_);
  EXPECT_THAT(Begun(Next()), ElementsAre("a"));
  Set(0, StepState::kSucceeded);
  EXPECT_THAT(Begun(Next()), ElementsAre("b", "c"));
  Set(1, StepState::kSucceeded);
  Set(2, StepState::kInFlight);
  EXPECT_THAT(Begun(Next({2})), IsEmpty()) << "what comes after waits for both";
  Set(2, StepState::kSucceeded);
  EXPECT_THAT(Begun(Next()), ElementsAre("d"));
}

TEST_F(DecideTest, AStepWhoseConditionDoesNotHoldIsSkipped) {
  definition_.steps[1].when = "$.input.total > 0";
  saga_.input = {{"total", 0}};
  Set(0, StepState::kSucceeded);
  EXPECT_THAT(Begun(Settle()), ElementsAre("c"));
  EXPECT_EQ(At(1).state, StepState::kSkipped);
}

TEST_F(DecideTest, WaitsForTheNextTry) {
  At(0).attempts = 1;
  At(0).available_at = kNow + std::chrono::seconds(3);
  EXPECT_THAT(Begun(Next()), IsEmpty());
  EXPECT_EQ(Next().look_at, At(0).available_at);
  EXPECT_THAT(Begun(Next({}, kNow + std::chrono::seconds(3))), ElementsAre("a"));
}

TEST_F(DecideTest, AWaitThatNoPolicyMakesWasWrittenByAnotherClock) {
  At(0).attempts = 1;
  At(0).available_at = kNow + std::chrono::hours(24);
  EXPECT_THAT(Begun(Next()), ElementsAre("a"));
}

TEST_F(DecideTest, UndoesInReverseOrderOneAtATime) {
  Set(0, StepState::kSucceeded);
  Set(1, StepState::kSucceeded);
  Set(2, StepState::kFailed);
  At(2).last_error = "no";
  EXPECT_THAT(Begun(Settle()), ElementsAre("unb"));
  EXPECT_EQ(saga_.state, SagaState::kCompensating);
  EXPECT_EQ(saga_.error, "c: no");
  Set(1, StepState::kInFlight);
  At(1).compensating = true;
  EXPECT_THAT(Begun(Settle({1})), IsEmpty());
  Set(1, StepState::kCompensated);
  EXPECT_THAT(Begun(Settle()), ElementsAre("una"));
  At(0).compensating = true;
  Set(0, StepState::kCompensated);
  Settle();
  EXPECT_EQ(saga_.state, SagaState::kFailed);
}

TEST_F(DecideTest, WhatHasNoCompensationIsPassedOver) {
  definition_ =
      DefinitionOf({StepOf("a"), StepOf("b", ActionKind::kHttp, true, false), StepOf("c")});
  Set(0, StepState::kSucceeded);
  Set(1, StepState::kSucceeded);
  Set(2, StepState::kFailed);
  EXPECT_THAT(Begun(Settle()), ElementsAre("una"));
}

TEST_F(DecideTest, AFailureWithNothingToUndoEndsAtOnce) {
  Set(0, StepState::kFailed);
  Settle();
  EXPECT_EQ(saga_.state, SagaState::kFailed);
}

TEST_F(DecideTest, AFailedCompensationIsADeadLetter) {
  saga_.state = SagaState::kCompensating;
  Set(0, StepState::kSucceeded);
  Set(1, StepState::kFailed);
  At(1).compensating = true;
  At(1).last_error = "refused";
  const Decision next = Next();
  ASSERT_TRUE(next.saga.has_value());
  EXPECT_EQ(next.saga->state, SagaState::kFailed);
  EXPECT_TRUE(next.saga->dead);
  EXPECT_THAT(next.saga->error, HasSubstr("compensation of b: refused"));
}

TEST_F(DecideTest, OnFailureStopLeavesWhatWasDone) {
  definition_.on_failure = OnFailure::kStop;
  Set(0, StepState::kSucceeded);
  Set(1, StepState::kFailed);
  const Decision next = Next();
  ASSERT_TRUE(next.saga.has_value());
  EXPECT_EQ(next.saga->state, SagaState::kFailed);
  EXPECT_TRUE(next.saga->dead);
}

TEST_F(DecideTest, AFailureWaitsForTheNeighbourUnderWay) {
  definition_.steps[0].concurrency_tag = definition_.steps[1].concurrency_tag = "t";
  definition_.steps[1].action.idempotent = false;
  Set(0, StepState::kFailed);
  Set(1, StepState::kInFlight);
  EXPECT_FALSE(Next({1}).changes());
  Set(1, StepState::kSucceeded);
  EXPECT_THAT(Begun(Settle()), ElementsAre("unb"));
}

TEST_F(DecideTest, AnOrphanIsRunAgainOnlyIfItMayBe) {
  Set(0, StepState::kInFlight);
  Decision next = Next();
  ASSERT_EQ(next.steps.size(), 1u);
  EXPECT_EQ(next.steps[0].step.state, StepState::kReady);
  EXPECT_THAT(Begun(Settle()), ElementsAre("a"));

  definition_.steps[0].action.idempotent = false;
  Set(0, StepState::kInFlight);
  EXPECT_THAT(Begun(Settle()), IsEmpty());
  EXPECT_EQ(saga_.state, SagaState::kPaused);
  EXPECT_TRUE(At(0).in_doubt);
  EXPECT_THAT(saga_.reason, HasSubstr("saga signal s a succeeded|failed"));
}

TEST_F(DecideTest, AnOrphansKeyIsAsked) {
  definition_.steps[0].action.idempotent = false;
  definition_.steps[0].action.settled_by_key = true;
  Set(0, StepState::kInFlight);
  EXPECT_THAT(Next().ask_key, ElementsAre(0));
  EXPECT_FALSE(Next().changes());
}

TEST_F(DecideTest, ASignalSettlesADoubtAndItGoesOn) {
  definition_.steps[0].action.idempotent = false;
  Set(0, StepState::kInFlight);
  Settle();
  ASSERT_EQ(saga_.state, SagaState::kPaused);
  At(0).signal = Signal{true, Json{{"id", 7}}};
  EXPECT_THAT(Begun(Settle()), ElementsAre("b"));
  EXPECT_EQ(saga_.state, SagaState::kRunning);
  EXPECT_EQ(At(0).result, (Json{{"id", 7}}));
}

TEST_F(DecideTest, AWaitIsSettledByASignalOrItsTimeout) {
  definition_ = DefinitionOf({StepOf("a", ActionKind::kWait), StepOf("b")});
  saga_ = NewSaga(definition_);
  EXPECT_THAT(Begun(Next()), ElementsAre("a"));
  Set(0, StepState::kInFlight);
  At(0).deadline = kNow + std::chrono::seconds(5);
  EXPECT_EQ(Next().look_at, At(0).deadline);
  StoredSaga early = saga_;
  At(0).signal = Signal{true, Json()};
  EXPECT_THAT(Begun(Settle()), ElementsAre("b"));
  saga_ = early;
  Settle({}, kNow + std::chrono::seconds(5));
  EXPECT_EQ(saga_.state, SagaState::kFailed);
  EXPECT_EQ(saga_.error_code, kTimeoutCode);
}

TEST_F(DecideTest, AFailureIsOfTheStepThatFailedNotOfTheNeighboursThatWereLeft) {
  definition_.steps[0].concurrency_tag = definition_.steps[1].concurrency_tag = "t";
  Set(0, StepState::kInFlight);
  Set(1, StepState::kFailed);
  At(1).last_error = "no";
  EXPECT_THAT(Begun(Settle({0})), ElementsAre("una")) << "it may have been done";
  EXPECT_EQ(saga_.failed_step, 1);
  EXPECT_EQ(saga_.error, "b: no");
}

TEST_F(DecideTest, ACancelLeavesWhatMayBeUndoneUnknown) {
  Set(0, StepState::kSucceeded);
  Set(1, StepState::kInFlight);
  saga_.cancel_asked = true;
  const Decision next = Next({1});
  EXPECT_THAT(next.abandoned, ElementsAre(1));
  // Whether it was in flight here, or waits for another try after its orchestrator died.
  EXPECT_THAT(Begun(Settle({})), ElementsAre("unb")) << "it may have been done";
  At(1).compensating = true;
  Set(1, StepState::kCompensated);
  EXPECT_THAT(Begun(Settle()), ElementsAre("una"));
  At(0).compensating = true;
  Set(0, StepState::kCompensated);
  Settle();
  EXPECT_EQ(saga_.state, SagaState::kCancelled);
}

TEST_F(DecideTest, ACancelWaitsForTheAnswerThatNobodyElseCanGive) {
  definition_.steps[0].action.idempotent = false;
  Set(0, StepState::kInFlight);
  At(0).deadline = kNow + std::chrono::seconds(9);
  saga_.cancel_asked = true;
  EXPECT_FALSE(Next({0}).changes());
  Settle({0}, kNow + std::chrono::seconds(60));
  EXPECT_EQ(saga_.state, SagaState::kPaused) << "it never came";
  At(0).signal = Signal{false, Json()};
  Settle();
  EXPECT_EQ(saga_.state, SagaState::kCancelled);
}

TEST_F(DecideTest, ACancelBeforeAnythingWasDoneJustEndsIt) {
  saga_.cancel_asked = true;
  Settle();
  EXPECT_EQ(saga_.state, SagaState::kCancelled);
}

TEST_F(DecideTest, TheSagasTimeoutTurnsItBack) {
  saga_.deadline = kNow + std::chrono::seconds(10);
  Set(0, StepState::kSucceeded);
  EXPECT_THAT(Begun(Settle()), ElementsAre("b"));
  EXPECT_THAT(Begun(Settle({}, kNow + std::chrono::seconds(10))), ElementsAre("una"));
  EXPECT_EQ(saga_.error_code, kTimeoutCode);
  EXPECT_EQ(saga_.failed_step, 1);
}

TEST_F(DecideTest, APauseBeginsNothingAndRecordsWhatComes) {
  saga_.state = SagaState::kPaused;
  saga_.paused_from = SagaState::kRunning;
  saga_.pause_asked = true;
  EXPECT_THAT(Begun(Settle()), IsEmpty());
  EXPECT_EQ(saga_.state, SagaState::kPaused);
  Set(0, StepState::kInFlight);
  EXPECT_FALSE(Next({0}).changes());
  saga_.pause_asked = false;
  Set(0, StepState::kSucceeded);
  EXPECT_THAT(Begun(Settle()), ElementsAre("b"));
}

TEST_F(DecideTest, WhatHasEndedIsLeftAlone) {
  for (const SagaState state : {SagaState::kCompleted, SagaState::kFailed, SagaState::kCancelled}) {
    saga_.state = state;
    EXPECT_FALSE(Next().changes());
    EXPECT_THAT(Begun(Next()), IsEmpty());
  }
}

// Against a naive model ---------------------------------------------------------------------------

// What happens to a step at last, however often it is tried: fixed before, by lot.
enum class Fate { kDone, kRefused };

// A recursion that says what must have been done in the end, and in which order undone.
struct Expected {
  std::vector<std::string> done, undone;
  SagaState state = SagaState::kCompleted;
};
// `doubted`: steps that were refused after an answer was lost.
Expected NaiveModel(const Definition& definition, const std::vector<Fate>& fates,
                    const std::set<std::string>& doubted) {
  Expected expected;
  std::vector<size_t> to_undo;
  for (size_t i = 0; i < fates.size(); ++i) {
    if (fates[i] == Fate::kDone) {
      expected.done.push_back(definition.steps[i].name);
      if (definition.steps[i].compensate) to_undo.push_back(i);
      continue;
    }
    expected.state = SagaState::kFailed;
    const Step& refused = definition.steps[i];
    if (refused.compensate && doubted.contains(refused.name)) {
      expected.undone.push_back("un" + refused.name);
    }
    for (auto at = to_undo.rbegin(); at != to_undo.rend(); ++at) {
      expected.undone.push_back("un" + definition.steps[*at].name);
    }
    break;
  }
  return expected;
}

TEST(DecideAgainstModel, RandomSagasDoAndUndoWhatTheModelSays) {
  std::mt19937 random(7);
  const auto lot = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3'000; ++round) {
    std::vector<Step> steps;
    std::vector<Fate> fates;
    for (int i = 0, n = 1 + lot(6); i < n; ++i) {
      steps.push_back(StepOf(std::string(1, static_cast<char>('a' + i)), ActionKind::kHttp,
                             /*idempotent=*/true, /*undoable=*/lot(4) != 0));
      fates.push_back(lot(8) == 0 ? Fate::kRefused : Fate::kDone);
    }
    const Definition definition = DefinitionOf(std::move(steps));
    std::set<std::string> doubted;
    StoredSaga saga = NewSaga(definition);
    std::set<int> here;
    WallTime now = kNow;
    std::vector<std::string> done;
    std::vector<std::string> undone;
    for (int i = 0; i < 2'000 && !saga.ended(); ++i) {
      // The orchestrator dies: what is under way is nobody's.
      if (lot(10) == 0) {
        for (const int step : here) doubted.insert(saga.steps[static_cast<size_t>(step)].name);
        here.clear();
      }
      const Decision next = Decide(definition, saga, now, here);
      if (next.changes()) {
        for (const int step : next.abandoned) here.erase(step);
        Apply(next, saga);
        continue;
      }
      ASSERT_LE(next.begin.size(), 1u);
      for (const auto& begin : next.begin) {
        StoredStep& step = saga.steps[static_cast<size_t>(begin.step)];
        step.compensating = begin.undo;
        step.state = StepState::kInFlight;
        here.insert(begin.step);
      }
      if (!here.empty()) {
        const int number = *here.begin();
        StoredStep& step = saga.steps[static_cast<size_t>(number)];
        Outcome outcome;  // done
        if (lot(5) == 0 && step.tries() == 0) {
          outcome = {.kind = Outcome::Kind::kFailed, .code = "X", .words = "later"};
          if (!step.compensating) doubted.insert(step.name);
        } else if (!step.compensating && fates[static_cast<size_t>(number)] == Fate::kRefused) {
          outcome = Outcome::Refused("X", "no");
        }
        const bool undo = step.compensating;
        step = AfterTry(step, ActionOf(definition, number, undo), outcome, now, 1, 0.5);
        if (outcome.kind == Outcome::Kind::kDone) {
          undo ? undone.push_back("un" + step.name) : done.push_back(step.name);
        }
        here.erase(number);
      } else if (next.look_at) {
        now = *next.look_at;
      }
    }
    const Expected expected = NaiveModel(definition, fates, doubted);
    ASSERT_EQ(saga.state, expected.state) << "round " << round;
    ASSERT_EQ(done, expected.done) << "round " << round;
    ASSERT_EQ(undone, expected.undone) << "round " << round;
  }
}

// Whatever happens, what was really done is undone in the end, in reverse order: with answers that
// get lost, orchestrators that die, cancels and timeouts at any moment.
TEST(DecideAgainstModel, NothingThatMayHaveBeenDoneIsForgotten) {
  std::mt19937 random(11);
  const auto lot = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int cancelled = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::vector<Step> steps;
    for (int i = 0, n = 1 + lot(5); i < n; ++i) {
      steps.push_back(StepOf(std::string(1, static_cast<char>('a' + i))));
      if (lot(3) == 0) steps.back().concurrency_tag = "t";
      steps.back().compensate->retry.max_attempts = 0;
    }
    const Definition definition = DefinitionOf(std::move(steps));
    StoredSaga saga = NewSaga(definition);
    if (lot(3) == 0) saga.deadline = kNow + std::chrono::seconds(lot(8));
    std::set<int> here;
    std::set<int> effects;  // in the world
    std::vector<int> undone;
    WallTime now = kNow;
    for (int i = 0; i < 5'000 && !saga.ended(); ++i) {
      if (lot(10) == 0) here.clear();
      if (lot(40) == 0) saga.cancel_asked |= saga.state == SagaState::kRunning;
      now += Millis(lot(500));
      const Decision next = Decide(definition, saga, now, here);
      if (next.changes()) {
        for (const int step : next.abandoned) here.erase(step);
        Apply(next, saga);
        continue;
      }
      for (const auto& begin : next.begin) {
        StoredStep& step = saga.steps[static_cast<size_t>(begin.step)];
        step.compensating = begin.undo;
        step.state = StepState::kInFlight;
        here.insert(begin.step);
        if (lot(4) == 0) continue;  // it is lost on its way
        if (begin.undo) {
          effects.erase(begin.step);
          if (!undone.empty() && undone.back() != begin.step) {
            ASSERT_LT(begin.step, undone.back()) << "out of order in round " << round;
          }
          undone.push_back(begin.step);
        } else {
          effects.insert(begin.step);
        }
      }
      if (here.empty()) {
        if (next.look_at) now = std::max(now, *next.look_at);
        continue;
      }
      if (lot(3) == 0) continue;
      const int number = *here.begin();
      StoredStep& step = saga.steps[static_cast<size_t>(number)];
      const bool arrived = effects.contains(number) != step.compensating;
      const Outcome outcome =
          arrived && lot(3) != 0
              ? Outcome::Done(Json())
              : Outcome{.kind = Outcome::Kind::kFailed, .code = "X", .words = "lost"};
      step = AfterTry(step, ActionOf(definition, number, step.compensating), outcome, now, 1, 0.5);
      here.erase(number);
    }
    ASSERT_TRUE(saga.ended()) << "round " << round;
    if (saga.state == SagaState::kCompleted) {
      ASSERT_EQ(effects.size(), saga.steps.size());
    } else {
      ASSERT_THAT(effects, IsEmpty()) << "round " << round << ": " << saga.ToJson().dump(1);
      ++cancelled;
    }
  }
  EXPECT_GT(cancelled, 1'000) << "the model hardly ever turns back";
}

// Retries -----------------------------------------------------------------------------------------

struct TryCase {
  const char* name;
  bool idempotent;
  bool compensating;
  Outcome outcome;
  int attempts;  // before
  StepState state;
  bool in_doubt;
  bool maybe_done;
  int attempts_after;
};
class AfterTryTest : public ::testing::TestWithParam<TryCase> {};

TEST_P(AfterTryTest, LeavesTheStepAsItShould) {
  const TryCase& c = GetParam();
  StoredStep step;
  step.state = StepState::kInFlight;
  step.compensating = c.compensating;
  step.tries() = c.attempts;
  Action action;
  action.idempotent = c.idempotent;
  action.retry.max_attempts = 2;
  StoredStep next = AfterTry(step, action, c.outcome, kNow, 1, 0.5);
  EXPECT_EQ(next.state, c.state);
  EXPECT_EQ(next.in_doubt, c.in_doubt);
  EXPECT_EQ(next.maybe_done, c.maybe_done);
  EXPECT_EQ(next.tries(), c.attempts_after);
  const bool waits = c.outcome.kind != Outcome::Kind::kDone &&
                     (next.state == StepState::kReady || next.state == StepState::kSucceeded);
  EXPECT_EQ(next.available_at.has_value(), waits);
}

const Outcome kDone = Outcome::Done(Json());
const Outcome kRefused = Outcome::Refused("C", "w");
const Outcome kOutage{.kind = Outcome::Kind::kFailed, .code = "C", .words = "w"};
const Outcome kNotSent{.kind = Outcome::Kind::kFailed, .code = "C", .words = "w", .certain = true};
const Outcome kLater{.kind = Outcome::Kind::kLater, .code = "C", .words = "w", .certain = true};
const Outcome kBlocked{.kind = Outcome::Kind::kBlocked, .code = "C", .words = "w", .certain = true};

INSTANTIATE_TEST_SUITE_P(
    All, AfterTryTest,
    ::testing::Values(
        TryCase{"Done", false, false, kDone, 0, StepState::kSucceeded, false, false, 0},
        TryCase{"Undone", true, true, kDone, 0, StepState::kCompensated, false, false, 0},
        TryCase{"Refused", true, false, kRefused, 0, StepState::kFailed, false, false, 0},
        TryCase{"UndoRefused", true, true, kRefused, 0, StepState::kFailed, false, false, 0},
        TryCase{"Outage", true, false, kOutage, 0, StepState::kReady, false, true, 1},
        TryCase{"UndoOutage", true, true, kOutage, 0, StepState::kSucceeded, false, false, 1},
        TryCase{"LastOutage", true, false, kOutage, 1, StepState::kFailed, false, true, 2},
        TryCase{"LastNotSent", true, false, kNotSent, 1, StepState::kFailed, false, false, 2},
        TryCase{"DoubtNotAgain", false, false, kOutage, 0, StepState::kInFlight, true, true, 1},
        TryCase{"UndoDoubtNotAgain", false, true, kOutage, 0, StepState::kInFlight, true, false, 1},
        TryCase{"NotSentAgain", false, false, kNotSent, 0, StepState::kReady, false, false, 1},
        TryCase{"NobodysFault", false, false, kLater, 1, StepState::kReady, false, false, 1},
        TryCase{"Blocked", false, false, kBlocked, 1, StepState::kReady, false, false, 1}),
    [](const auto& one) { return one.param.name; });

TEST(AfterTry, WaitsByItsPolicyAndAsLongAsTheServerWishes) {
  StoredStep step;
  step.state = StepState::kInFlight;
  Action action;
  action.idempotent = true;
  for (const auto& [attempts, seconds] : {std::pair(0, 1), {1, 2}, {2, 4}, {4, 16}}) {
    step.attempts = attempts;
    EXPECT_EQ(*AfterTry(step, action, kOutage, kNow, 0, 0.5).available_at,
              kNow + std::chrono::seconds(seconds));
  }
  Outcome wish = kOutage;
  wish.retry_after = Millis(60'000);
  EXPECT_EQ(*AfterTry(step, action, wish, kNow, 0, 0.5).available_at,
            kNow + std::chrono::seconds(60));
}

}  // namespace
}  // namespace lockstep::sagas
