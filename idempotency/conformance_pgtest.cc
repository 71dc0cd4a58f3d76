// What every store promises, whatever it keeps its keys in.
#include "idempotency/memory_store.h"
#include "idempotency/testing/keys_test.h"
#include "tests/support/fake_clock.h"

namespace lockstep::idempotency {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Millis kHour{3'600'000}, kLease{60'000};

class World {
 public:
  virtual ~World() = default;
  virtual IdempotencyStore& store() = 0;
  virtual void Jump(Millis by) = 0;  // of the store's clock, forward or back
};

class MemoryWorld : public World {
 public:
  IdempotencyStore& store() override { return store_; }
  void Jump(Millis by) override { clock_.Advance(by); }

 private:
  testing::FakeClock clock_;
  MemoryStore store_{clock_};
};

class PostgresWorld : public World, private KeysTest {
 public:
  IdempotencyStore& store() override { return store_; }
  void Jump(Millis by) override { KeysTest::Jump(by); }

 private:
  void TestBody() override {}
};

class Conformance : public ::testing::TestWithParam<const char*> {
 protected:
  Conformance() {
    if (std::string_view(GetParam()) == "memory") {
      world_ = std::make_unique<MemoryWorld>();
    } else {
      world_ = std::make_unique<PostgresWorld>();
    }
  }
  IdempotencyStore& store() { return world_->store(); }
  Answer Call(const Request& request) {
    const auto answer = store().CheckAndPut(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(Answer());
  }
  Outcome OutcomeOf(const std::string& key) { return Call(Ask(key)).outcome; }
  Held Take(const std::string& key) {
    const Answer answer = Call(Ask(key));
    EXPECT_EQ(answer.outcome, Outcome::kGo);
    EXPECT_NE(answer.token, "");
    return {std::nullopt, key, answer.token};
  }
  absl::StatusCode FinishedWith(const Held& held, const std::string& digest = "d") {
    return store().Finish(held, digest).code();
  }

  std::unique_ptr<World> world_;
};
INSTANTIATE_TEST_SUITE_P(Idempotency, Conformance, ::testing::Values("memory", "postgres"),
                         [](const auto& test) { return std::string(test.param); });

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kLost = absl::StatusCode::kAborted;

TEST_P(Conformance, TheFirstGoesOthersAreBusyUntilItIsDone) {
  const Held held = Take("k");
  const Answer busy = Call(Ask("k"));
  EXPECT_EQ(busy.outcome, Outcome::kBusy);
  EXPECT_EQ(busy.token, "");
  EXPECT_EQ(FinishedWith(held, "it is in row 7"), kOk);
  const Answer done = Call(Ask("k"));
  EXPECT_EQ(done.outcome, Outcome::kDone);
  EXPECT_EQ(done.digest, "it is in row 7");
}

TEST_P(Conformance, ADigestMayBeMissing) {
  ASSERT_TRUE(store().Finish(Take("k"), std::nullopt).ok());
  EXPECT_EQ(Call(Ask("k")).outcome, Outcome::kDone);
  EXPECT_EQ(Call(Ask("k")).digest, std::nullopt);
}

TEST_P(Conformance, AFailureIsAnsweredUntilSomebodyAsksToTryAgain) {
  ASSERT_TRUE(store().Fail(Take("k"), "no money").ok());
  const Answer failed = Call(Ask("k"));
  EXPECT_EQ(failed.outcome, Outcome::kFailed);
  EXPECT_EQ(failed.error, "no money");
  Request again = Ask("k");
  again.retry_failed = true;
  const Answer go = Call(again);
  EXPECT_EQ(go.outcome, Outcome::kGo);
  EXPECT_EQ(Call(again).outcome, Outcome::kBusy) << "one of those that try again";
  EXPECT_EQ(FinishedWith({{}, "k", go.token}), kOk);
  EXPECT_EQ(Call(again).outcome, Outcome::kDone);
}

TEST_P(Conformance, AnotherHashIsAConflictInEveryState) {
  const Held held = Take("k");
  EXPECT_EQ(Call(Ask("k", "other")).outcome, Outcome::kConflict);
  world_->Jump(kLease + Millis(1));
  EXPECT_EQ(Call(Ask("k", "other")).outcome, Outcome::kConflict) << "its caller has died";
  ASSERT_EQ(FinishedWith(held), kOk);
  EXPECT_EQ(Call(Ask("k", "other")).outcome, Outcome::kConflict);
  ASSERT_TRUE(store().Fail(Take("f"), "x").ok());
  Request other = Ask("f", "other");
  other.retry_failed = true;
  EXPECT_EQ(Call(other).outcome, Outcome::kConflict);
}

TEST_P(Conformance, TenantsDoNotMeetAndNoTenantIsOneToo) {
  Request of_a = Ask("k");
  of_a.tenant = "a";
  Request of_b = of_a;
  of_b.tenant = "b";
  EXPECT_EQ(Call(Ask("k")).outcome, Outcome::kGo);
  EXPECT_EQ(Call(of_a).outcome, Outcome::kGo);
  EXPECT_EQ(Call(of_b).outcome, Outcome::kGo);
  EXPECT_EQ(Call(Ask("k")).outcome, Outcome::kBusy) << "a NULL is equal to a NULL here";
  EXPECT_EQ(Call(of_a).outcome, Outcome::kBusy);
}

TEST_P(Conformance, ADigestHas4096BytesAtMost) {
  const Held held = Take("k");
  EXPECT_EQ(FinishedWith(held, std::string(4'097, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy) << "it is not done";
  EXPECT_EQ(FinishedWith(held, std::string(4'096, 'x')), kOk);
  EXPECT_EQ(Call(Ask("k")).digest->size(), 4'096u);
}

TEST_P(Conformance, AnErrorIsCutAt2KiBAndNotInsideACharacter) {
  std::string error = "x";
  for (int i = 0; i < 3'000; ++i) error += "é";
  ASSERT_TRUE(store().Fail(Take("k"), error).ok());
  const std::string kept = Call(Ask("k")).error;
  EXPECT_EQ(kept, error.substr(0, 2'047)) << "x and 1,023 characters of two bytes";
}

TEST_P(Conformance, ACallerThatDiedFreesItsKeyAfterItsLeaseNotAfterTheTtl) {
  Take("k");
  world_->Jump(kLease - Millis(10'000));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  world_->Jump(Millis(10'001));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
}

TEST_P(Conformance, ALoserFinishesFailsAndRenewsNothing) {
  const Held loser = Take("k");
  world_->Jump(kLease + Millis(1));
  const Held winner = Take("k");
  EXPECT_EQ(FinishedWith(loser), kLost);
  EXPECT_EQ(store().Fail(loser, "x").code(), kLost);
  EXPECT_EQ(store().Renew(loser, kLease).code(), kLost);
  EXPECT_THAT(std::string(MessageOf(store().Finish(loser, "d"))),
              ::testing::AllOf(HasSubstr("STORAGE.CONFLICT"), HasSubstr("undo the work")));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  EXPECT_EQ(FinishedWith(winner, "the winner's"), kOk);
  EXPECT_EQ(FinishedWith(loser), kLost);
  EXPECT_EQ(Call(Ask("k")).digest, "the winner's");
}

TEST_P(Conformance, AFinishAfterTheLeaseStandsIfNobodyTookTheKey) {
  const Held held = Take("k");
  world_->Jump(kLease + kHour);
  EXPECT_EQ(FinishedWith(held), kOk);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kDone);
}

TEST_P(Conformance, TheSameEndAgainIsFineAndAnotherIsNot) {
  const Held held = Take("k");
  ASSERT_EQ(FinishedWith(held), kOk);
  EXPECT_EQ(FinishedWith(held), kOk) << "the answer was lost on the way";
  EXPECT_EQ(FinishedWith(held, "another"), kLost);
  EXPECT_EQ(store().Fail(held, "x").code(), kLost);
  EXPECT_EQ(store().Renew(held, kLease).code(), kLost);
  const Held failed = Take("f");
  ASSERT_TRUE(store().Fail(failed, "x").ok());
  EXPECT_TRUE(store().Fail(failed, "x").ok());
  EXPECT_EQ(FinishedWith(failed), kLost);
}

TEST_P(Conformance, WithoutTheTokenNothingIsFinishedFromOutside) {
  Take("k");
  EXPECT_EQ(FinishedWith({{}, "k", ""}), kLost);
  EXPECT_EQ(FinishedWith({{}, "never taken", ""}), kLost);
  EXPECT_EQ(FinishedWith({{}, "never taken", "00000000-0000-4000-8000-000000000000"}), kLost);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
}

TEST_P(Conformance, ARenewedLeaseBeginsAnew) {
  const Held held = Take("k");
  world_->Jump(kLease - Millis(10'000));
  ASSERT_TRUE(store().Renew(held, 3 * kLease).ok());
  world_->Jump(3 * kLease - Millis(10'000));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  world_->Jump(Millis(10'001));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
}

TEST_P(Conformance, AnAnswerIsKeptForAWholeTtlAfterTheWorkAndThenIsAsIfItHadNeverBeen) {
  const Held held = Take("k");
  world_->Jump(30 * kHour);  // longer than the TTL
  ASSERT_EQ(FinishedWith(held), kOk);
  world_->Jump(24 * kHour - kLease);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kDone);
  world_->Jump(2 * kLease);
  EXPECT_EQ(Call(Ask("k", "another request")).outcome, Outcome::kGo);
}

TEST_P(Conformance, AClockThatIsSetBackFreesNothingThatIsInFlight) {
  const Held held = Take("k");
  world_->Jump(-kHour);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  EXPECT_EQ(FinishedWith(held), kOk);
}

TEST_P(Conformance, ALeaseOfAClockGoneWrongEndsALeaseAfterItIsNoticed) {
  Take("k");
  world_->Jump(-1'000 * kHour);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  world_->Jump(kLease - Millis(10'000));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy) << "a whole lease, from then on";
  world_->Jump(Millis(10'001));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
}

TEST_P(Conformance, AnAnswerOfAClockGoneWrongEndsATtlAfterItIsNoticed) {
  ASSERT_EQ(FinishedWith(Take("k")), kOk);
  world_->Jump(-1'000 * kHour);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kDone);
  world_->Jump(24 * kHour - kLease);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kDone);
  world_->Jump(3 * kLease);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
}

TEST_P(Conformance, AClockThatJumpsForwardLetsNobodyFinishAnothersWork) {
  const Held first = Take("k");
  world_->Jump(kHour);
  const Held second = Take("k");
  world_->Jump(-kHour);
  EXPECT_EQ(FinishedWith(first), kLost);
  EXPECT_EQ(FinishedWith(second), kOk);
}

TEST_P(Conformance, WhatIsTooLongOrMissingIsRefused) {
  const auto refused = [&](const auto& change) {
    Request request = Ask("k");
    change(request);
    const auto answer = store().CheckAndPut(request);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument) << answer.status();
    return std::string(MessageOf(answer.status()));
  };
  EXPECT_THAT(refused([](Request& r) { r.key = ""; }), HasSubstr("1 to 1024 bytes"));
  EXPECT_THAT(refused([](Request& r) { r.key = std::string(1'025, 'k'); }), HasSubstr("1024"));
  EXPECT_THAT(refused([](Request& r) { r.tenant = ""; }), HasSubstr("tenant"));
  EXPECT_THAT(refused([](Request& r) { r.hash = ""; }), HasSubstr("256 bytes"));
  EXPECT_THAT(refused([](Request& r) { r.hash = std::string(257, 'h'); }), HasSubstr("256"));
  EXPECT_THAT(refused([](Request& r) { r.ttl = Millis(0); }), HasSubstr("TTL"));
  EXPECT_THAT(refused([](Request& r) { r.ttl = 367 * 24 * kHour; }), HasSubstr("366 days"));
  EXPECT_THAT(refused([](Request& r) { r.lease = Millis(-1); }), HasSubstr("lease"));
  EXPECT_THAT(refused([](Request& r) { r.lease = 25 * kHour; }), HasSubstr("24 hours"));
  EXPECT_EQ(store().Renew(Take("r"), Millis(0)).code(), absl::StatusCode::kInvalidArgument);
  Request longest = Ask(std::string(1'024, 'k'), std::string(256, 'h'));
  longest.tenant = std::string(1'024, 't');
  EXPECT_EQ(Call(longest).outcome, Outcome::kGo);
  EXPECT_EQ(Call(longest).outcome, Outcome::kBusy);
}

}  // namespace
}  // namespace lockstep::idempotency
