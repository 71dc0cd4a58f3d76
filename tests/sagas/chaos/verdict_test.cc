#include "tests/sagas/chaos/verdict.h"

#include <gmock/gmock.h>

namespace lockstep::sagachaos {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kId[] = "0190";

Request Asked(int64_t at, const std::string& path, const std::string& answer = "ok",
              const std::string& did = "did") {
  const bool undo = path == "refund" || path == "unpack" || path == "unlabel";
  return {at, path, kId, std::string(kId) + (undo ? "/undone/" : "/") + path, answer, did};
}

std::vector<Step> Steps(const std::vector<std::string>& states) {
  std::vector<Step> steps;
  for (size_t i = 0; i < states.size(); ++i) {
    steps.push_back({.name = KnownSteps()[i].name, .state = states[i]});
  }
  return steps;
}

void AuditAll(Saga& saga) {
  saga.changes = {{"", "end", "Running", saga.state}};
  for (const Step& step : saga.steps) {
    if (step.state == "Ready") continue;
    saga.changes.push_back({step.name, "begin", "Ready", "InFlight"});
    saga.changes.push_back({step.name, "end", "InFlight", step.state});
  }
}

Saga Completed() {
  Saga saga{.id = kId, .key = "k", .state = "Completed"};
  saga.steps = Steps(
      {"Succeeded", "Succeeded", "Succeeded", "Succeeded", "Succeeded", "Skipped", "Succeeded"});
  saga.effects = {{10, kId, "reserve"}, {50, kId, "announce"}, {60, kId, "ship"}};
  saga.requests = {Asked(20, "charge"), Asked(30, "pack"), Asked(40, "label")};
  AuditAll(saga);
  return saga;
}

// Its last step refused it, and everything was undone.
Saga Undone() {
  Saga saga = Completed();
  saga.state = "Failed";
  saga.failed_step = "ship";
  saga.steps = Steps({"Compensated", "Compensated", "Compensated", "Compensated", "Compensated",
                      "Skipped", "Failed"});
  saga.effects = {{10, kId, "reserve"},
                  {50, kId, "announce"},
                  {70, kId, "announce", true},
                  {110, kId, "reserve", true}};
  for (const Request& request : {Asked(80, "unlabel"), Asked(90, "unpack"), Asked(100, "refund")}) {
    saga.requests.push_back(request);
  }
  AuditAll(saga);
  return saga;
}
const Plan kRefused{.refuse = "ship"};

std::vector<std::string> Judge(const Saga& saga, const Plan& plan = {},
                               const std::vector<Attack>& attacks = {}) {
  return Verdict(attacks).Judge(saga, plan);
}

TEST(SagaVerdict, PassesWhatIsAsItShouldBe) {
  EXPECT_THAT(Judge(Completed()), IsEmpty());
  EXPECT_THAT(Judge(Undone(), kRefused), IsEmpty());
}

TEST(SagaVerdict, SeesASagaThatDidNotEnd) {
  Saga saga = Completed();
  saga.state = "Running";
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("in no final state")));
}

TEST(SagaVerdict, SeesAStepThatWasDoneTwice) {
  Saga saga = Completed();
  saga.effects.push_back({61, kId, "ship"});
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("ship was done 2 times")));
}

TEST(SagaVerdict, SeesASuccessThatWasNeverDone) {
  Saga saga = Completed();
  saga.effects.pop_back();
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("ship has succeeded and was never done")));
}

TEST(SagaVerdict, SeesAMissingUndoing) {
  Saga saga = Undone();
  saga.requests.pop_back();
  EXPECT_THAT(Judge(saga, kRefused), ::testing::Contains(HasSubstr("charge was done")));
}

TEST(SagaVerdict, SeesADoubledUndoing) {
  Saga saga = Undone();
  saga.effects.push_back({111, kId, "reserve", true});
  EXPECT_THAT(Judge(saga, kRefused), ::testing::Contains(HasSubstr("undone 2 times")));
}

TEST(SagaVerdict, SeesUndoingsOutOfOrder) {
  Saga saga = Undone();
  std::swap(saga.requests[4].at, saga.requests[5].at);
  EXPECT_THAT(Judge(saga, kRefused), ElementsAre(HasSubstr("charge was undone before pack was")));
}

TEST(SagaVerdict, SeesAStepThatBeganTooEarly) {
  Saga saga = Completed();
  saga.requests[0].at = 9;
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("charge began before reserve was done")));
}

TEST(SagaVerdict, SeesAFailureWithoutReason) {
  EXPECT_THAT(Judge(Undone()), ElementsAre(HasSubstr("failed at ship without reason")));
  Saga saga = Undone();
  saga.state = "Cancelled";
  saga.changes[0].to = "Cancelled";
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("nobody asked")));
}

TEST(SagaVerdict, LetsAChargeBeAskedAgainOnlyWhenItCertainlyWasNotDone) {
  Saga saga = Completed();
  saga.requests.insert(saga.requests.begin(), Asked(19, "charge", "429", "not"));
  EXPECT_THAT(Judge(saga), IsEmpty());
  saga.requests[0].answer = "500";
  EXPECT_THAT(Judge(saga, {}, {{0, 100, "killed"}}),
              ElementsAre(HasSubstr("charge came again after '500'")));
}

TEST(SagaVerdict, WantsAnAttackForARepetition) {
  Saga saga = Completed();
  saga.requests.insert(saga.requests.begin() + 2, Asked(35, "pack", "ok", "again"));
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("pack came again")));
  EXPECT_THAT(Judge(saga, {}, {{32, 33, "killed"}}), IsEmpty());
}

TEST(SagaVerdict, SeesAGapInTheAudit) {
  Saga saga = Completed();
  saga.changes.pop_back();
  EXPECT_THAT(Judge(saga), ElementsAre(HasSubstr("audit: ship ends InFlight and is Succeeded")));
}

TEST(SagaVerdict, WantsAReasonForADoubt) {
  Saga saga = Completed();
  const Verdict verdict({{5'000, 5'500, "killed"}});
  EXPECT_TRUE(verdict.DoubtIsExplained(saga, 5'200));
  EXPECT_FALSE(verdict.DoubtIsExplained(saga, 1'000));
  saga.requests[0].answer = "cut";
  EXPECT_TRUE(verdict.DoubtIsExplained(saga, 1'000));
}

}  // namespace
}  // namespace lockstep::sagachaos
