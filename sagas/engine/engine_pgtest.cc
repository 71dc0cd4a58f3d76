// What an engine does with sagas on a real database, by the kinds of steps and what becomes of
// them.
#include "sagas/engine/engine.h"
#include "sagas/testing/engine_test.h"
#include "tests/support/service_stress.h"

namespace lockstep::sagas {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the fixture's words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using EngineRuns = EngineTest;

TEST_F(EngineRuns, StepsOfAllKindsInTheirOrder) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", false) + "," + BusStep("announce") +
                "," + WaitStep("approve") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start({{"order", 1}});
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  EXPECT_TRUE(Eventually([&] { return Show(id).owner.empty(); })) << "nobody holds what waits";
  EXPECT_TRUE(Signal(id, "approve", true, {{"by", "cy"}}));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Ledger(), "reserve ship");
  EXPECT_EQ(StepOf(id, "reserve").result, (Json{{"id", "r-reserve"}}));
  EXPECT_EQ(StepOf(id, "charge").result, (Json{{"id", "charge"}}));
  EXPECT_EQ(StepOf(id, "approve").result, (Json{{"by", "cy"}}));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.saga_work"), 0);

  ASSERT_EQ(participant_.seen().size(), 1u);
  const auto seen = participant_.seen()[0];
  EXPECT_EQ(seen.headers.at("idempotency-key"), id + "/charge");
  EXPECT_EQ(seen.headers.at("lockstep-saga"), id);
  EXPECT_EQ(seen.headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(seen.body), (Json{{"saga", id}}));

  const auto event = db_.Query(
      "SELECT topic, event_type, aggregate_id, version, convert_from(payload, 'UTF8') FROM "
      "shop.outbox");
  ASSERT_EQ(event.rows(), 1);
  EXPECT_EQ(event.Text(0, 0), "order.announce.v1");
  EXPECT_EQ(event.Text(0, 1), "order.announce");
  EXPECT_EQ(event.Text(0, 2), id);
  EXPECT_EQ(event.Int(0, 3), 1);
  for (const StoredStep& step : Show(id).steps) {
    EXPECT_TRUE(step.started_at && step.completed_at) << step.name;
    EXPECT_LE(*step.started_at, *step.completed_at) << step.name;
  }
}

TEST_F(EngineRuns, AFailedStepAndEverythingIsUndoneInReverse) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", false) + "," + BusStep("announce") +
                "," + SqlStep("ship"));
  Run();
  const std::string id = Start({{"ship", "refuse"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Ledger(), "reserve unreserve");
  EXPECT_EQ(Asked(), "charge uncharge");
  EXPECT_EQ(Json::parse(participant_.seen()[1].body), (Json{{"of", "charge"}}));
  EXPECT_EQ(participant_.seen()[1].headers.at("idempotency-key"), id + "/charge/compensate");
  EXPECT_EQ(db_.Query("SELECT string_agg(topic || version, ' ' ORDER BY version) FROM shop.outbox")
                .Text(0, 0),
            "order.announce.v11 order.unannounce.v12");
  const StoredSaga saga = Show(id);
  EXPECT_FALSE(saga.dead_at.has_value());
  EXPECT_EQ(saga.error, "ship: out of stock");
  EXPECT_EQ(saga.error_code, "SAGA.STEP_REFUSED");
  EXPECT_EQ(saga.failed_step, 3);
  const auto undone = db_.Query(
      "SELECT string_agg(t.name, ' ' ORDER BY a.id) FROM lockstep.saga_audit a JOIN "
      "lockstep.saga_steps t USING (saga, step) "
      "WHERE to_state = 'Compensated'");
  EXPECT_EQ(undone.Text(0, 0), "announce charge reserve");
}

TEST_F(EngineRuns, ADatabaseErrorSpendsAttemptsAndLeavesNothing) {
  RegisterSteps(SqlStep("reserve"));
  Run();
  const std::string id = Start({{"reserve", "data"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(StepOf(id, "reserve").attempts, 3);
  EXPECT_EQ(StepOf(id, "reserve").error_code, "SAGA.REFUSED_BY_DATABASE");
  EXPECT_EQ(Ledger(), "");
}

TEST_F(EngineRuns, AStepThatTakesTooLongIsGivenUp) {
  RegisterSteps(SqlStep("reserve", R"(, "timeout": "50ms")"));
  Run();
  const std::string id = Start({{"reserve", "slow"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(StepOf(id, "reserve").error_code, "TX.TIMEOUT");
}

TEST_F(EngineRuns, AMissingFunctionSpendsNoAttempt) {
  RegisterSteps(
      R"({"name": "reserve", "action": "sql:shop.missing", "retry": {"cap": "20ms", "base": "10ms"}})");
  Run();
  const std::string id = Start({{"what", "late"}});
  ASSERT_TRUE(Eventually([&] { return StepOf(id, "reserve").error_code == "SAGA.MISCONFIGURED"; }));
  EXPECT_EQ(StepOf(id, "reserve").attempts, 0);
  db_.Run("ALTER FUNCTION shop.note RENAME TO missing");
  EXPECT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Ledger(), "late");
}

TEST_F(EngineRuns, AnErrorOfTheDatabaseQuotesNoValue) {
  RegisterSteps(R"({"name": "reserve", "action": "sql:shop.cast", "retry": {"max_attempts": 1}})");
  db_.Run(
      "CREATE FUNCTION shop.cast(request jsonb) RETURNS jsonb LANGUAGE sql AS "
      "$$ SELECT to_jsonb((request->>'card')::int) $$");
  Run();
  const std::string id = Start({{"card", "4242-secret"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(StepOf(id, "reserve").last_error, "invalid input syntax for type integer: \"…\"");
}

TEST_F(EngineRuns, ARequestThatCannotBeMadeFailsItsStep) {
  RegisterSteps(
      R"({"name": "reserve", "action": "sql:shop.note", "request": {"what": "$.input.missing"}})");
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(StepOf(id, "reserve").error_code, "SAGA.REQUEST_INVALID");
  EXPECT_THAT(StepOf(id, "reserve").last_error, HasSubstr("$.input.missing"));
}

TEST_F(EngineRuns, ConditionsSkipSteps) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("gift", R"(, "when": "$.input.gift == true")"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(StepOf(id, "gift").state, StepState::kSkipped);
  EXPECT_EQ(Ledger(), "reserve");
}

TEST_F(EngineRuns, IdempotentCallsAreTriedAgain) {
  RegisterSteps(HttpStep("charge", true));
  Tell("charge", {HttpTestServer::Status(503), HttpTestServer::Status(408)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge charge charge");
  EXPECT_EQ(StepOf(id, "charge").attempts, 2);
}

TEST_F(EngineRuns, AnAnswerThatCannotBeKeptIsNoResultAndTheStepIsDone) {
  RegisterSteps(HttpStep("charge", false));
  Tell("charge", {HttpTestServer::Ok(R"({"id": "a\u0000b"})"), HttpTestServer::Ok("thanks"),
                  HttpTestServer::Ok(std::string(4'000, '[') + std::string(4'000, ']')),
                  HttpTestServer::Ok('"' + std::string(20'000, 'x') + '"')});
  Run();
  for (int i = 0; i < 4; ++i) {
    const std::string id = Start();
    ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
    EXPECT_TRUE(StepOf(id, "charge").result.is_null());
  }
  EXPECT_EQ(Asked(), "charge charge charge charge");
}

TEST_F(EngineRuns, ARefusalFailsAtOnce) {
  RegisterSteps(HttpStep("charge", true));
  Tell("charge", {HttpTestServer::Status(402, "", "no money")});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Asked(), "charge");
  EXPECT_THAT(Show(id).error, HasSubstr("charge: answered 402"));
}

TEST_F(EngineRuns, ACallThatMayHaveBeenDoneIsUndone) {
  RegisterSteps(HttpStep("charge", true));
  Tell("charge", std::vector<std::string>(3, HttpTestServer::Status(500)));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Asked(), "charge charge charge uncharge");
  EXPECT_EQ(StepOf(id, "charge").state, StepState::kCompensated);
}

// Each answer that leaves a doubt, and each that does not.
TEST_F(EngineRuns, WhatMayNotBeDoneTwiceIsSentAgainOnlyIfItWasCertainlyNotDone) {
  RegisterSteps(HttpStep("charge", false));
  Run();
  for (const std::string& doubtful : {HttpTestServer::Status(500), HttpTestServer::Status(408),
                                      std::string(HttpTestServer::kClose)}) {
    Tell("charge", {doubtful});
    const std::string id = Start();
    ASSERT_TRUE(Becomes(id, SagaState::kPaused));
    EXPECT_TRUE(StepOf(id, "charge").in_doubt);
    EXPECT_THAT(Show(id).reason, HasSubstr("lockstepctl saga signal " + id + " charge"));
    EXPECT_TRUE(Signal(id, "charge", true));
    ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  }
  EXPECT_EQ(Asked(), "charge charge charge");
  Tell("charge", {HttpTestServer::Status(429, "Retry-After: 0\r\n"), HttpTestServer::Status(425)});
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(StepOf(id, "charge").attempts, 2);
}

// Over a connection that was kept, libcurl would send it again by itself.
TEST_F(EngineRuns, ADeadConnectionDoesNotRepeatACall) {
  RegisterSteps(HttpStep("charge", false) + "," + HttpStep("again", false));
  Tell("again", {""});  // reads the request and ends the connection without a byte
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kPaused));
  EXPECT_EQ(Asked(), "charge again");
}

TEST_F(EngineRuns, ASignalOfFailureSettlesADoubtToo) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", false));
  Tell("charge", {HttpTestServer::Status(500)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kPaused));
  EXPECT_TRUE(Signal(id, "charge", false));
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Ledger(), "reserve unreserve");
  EXPECT_EQ(Asked(), "charge") << "what was not done is not undone";
}

TEST_F(EngineRuns, ARetryOfADoubtSendsItAgain) {
  RegisterSteps(HttpStep("charge", false));
  Tell("charge", {HttpTestServer::Status(500)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kPaused));
  EXPECT_EQ(*RetryStep(*connection_, By(id)), "charge");
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge charge");
}

TEST_F(EngineRuns, NeighboursOfATagSideBySide) {
  RegisterSteps(HttpStep("pack", true, R"(, "concurrency_tag": "store")") + "," +
                HttpStep("label", true, R"(, "concurrency_tag": "store")") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  const auto from = [&](const char* name) { return *StepOf(id, name).started_at; };
  EXPECT_LT(from("label"), *StepOf(id, "pack").completed_at);
  EXPECT_LT(from("pack"), *StepOf(id, "label").completed_at);
}

TEST_F(EngineRuns, AFailedNeighbourIsUndoneWithTheOther) {
  RegisterSteps(HttpStep("pack", true, R"(, "concurrency_tag": "store")") + "," +
                HttpStep("label", true, R"(, "concurrency_tag": "store")"));
  Tell("pack", {HttpTestServer::Status(400)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(StepOf(id, "label").state, StepState::kCompensated);
}

TEST_F(EngineRuns, AFailedCompensationIsADeadLetterAndIsReplayed) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", true) + "," + SqlStep("ship"));
  Tell("uncharge", {HttpTestServer::Status(409)});
  Run();
  const std::string id = Start({{"ship", "refuse"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_TRUE(Show(id).dead_at.has_value());
  EXPECT_EQ(Ledger(), "reserve") << "what comes before is not undone out of order";
  EXPECT_EQ(*ReplaySaga(*connection_, By(id), ReplayInto::kFailedStep), "Compensating");
  ASSERT_TRUE(Eventually([&] { return !Show(id).dead_at && Show(id).ended(); }));
  EXPECT_EQ(Ledger(), "reserve unreserve");
  EXPECT_EQ(Asked(), "charge uncharge uncharge");
  EXPECT_EQ(
      db_.QueryInt("SELECT count(*) FROM lockstep.saga_audit WHERE action = 'TxReplayRequested'"),
      1);
}

TEST_F(EngineRuns, OnFailureStopWaitsForAPersonWhoGoesOnOrUndoes) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", true), R"(, "on_failure": "stop")");
  Tell("charge", {HttpTestServer::Status(400), HttpTestServer::Status(400)});
  Run();
  const std::string on = Start();
  ASSERT_TRUE(Becomes(on, SagaState::kFailed));
  const std::string back = Start();
  ASSERT_TRUE(Becomes(back, SagaState::kFailed));
  EXPECT_TRUE(Show(on).dead_at && Show(back).dead_at);
  EXPECT_EQ(Ledger(), "reserve reserve");
  EXPECT_EQ(*ReplaySaga(*connection_, By(on), ReplayInto::kFailedStep), "Running");
  EXPECT_TRUE(Becomes(on, SagaState::kCompleted));
  EXPECT_EQ(*ReplaySaga(*connection_, By(back), ReplayInto::kCompensation), "Compensating");
  ASSERT_TRUE(Eventually([&] { return Show(back).ended() && !Show(back).dead_at; }));
  EXPECT_EQ(StateOf(back), SagaState::kFailed);
  EXPECT_EQ(Ledger(), "reserve reserve unreserve");
}

TEST_F(EngineRuns, SignalsEarlyLateAndTwice) {
  RegisterSteps(HttpStep("charge", true) + "," + WaitStep("approve"));
  const std::string id = Start();
  EXPECT_TRUE(Signal(id, "approve", true, {{"n", 1}})) << "early";
  EXPECT_TRUE(Signal(id, "approve", true, {{"n", 1}})) << "twice";
  EXPECT_FALSE(Signal(id, "approve", false)) << "another outcome";
  Run();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(StepOf(id, "approve").result, (Json{{"n", 1}}));
  EXPECT_TRUE(Signal(id, "approve", true, {{"n", 1}})) << "the same, after the end";
  EXPECT_FALSE(Signal(id, "charge", false)) << "late";
  EXPECT_TRUE(absl::IsNotFound(SignalSaga(*connection_, id, "nothing", true, Json()).status()));
}

TEST_F(EngineRuns, AReplyIsWaitedFor) {
  RegisterSteps(BusStep("ask", R"(, "reply": true)") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "ask", StepState::kInFlight));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox WHERE attributes->>'saga_step' = 'ask'"),
            1);
  EXPECT_TRUE(Signal(id, "ask", true, {{"yes", true}}));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
}

TEST_F(EngineRuns, AWaitThatIsOverFails) {
  RegisterSteps(SqlStep("reserve") + "," + WaitStep("approve", R"(, "timeout": "50ms")"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Show(id).error_code, "TX.TIMEOUT");
  EXPECT_EQ(Ledger(), "reserve unreserve");
}

TEST_F(EngineRuns, TheSagasTimeoutReachesWhatIsInFlight) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("pack", true), R"(, "timeout": "300ms")");
  Tell("pack", {HttpTestServer::kHang});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Show(id).error_code, "TX.TIMEOUT");
  EXPECT_EQ(Asked(), "pack unpack") << "it may have been done";
  EXPECT_EQ(Ledger(), "reserve unreserve");
}

TEST_F(EngineRuns, ACancelReachesWhatIsInFlight) {
  RegisterSteps(SqlStep("reserve") + "," + HttpStep("pack", true, R"(, "timeout": "100s")"));
  Tell("pack", {HttpTestServer::kHang});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "pack"; }));
  EXPECT_EQ(*CancelSaga(*connection_, By(id)), "Running");
  ASSERT_TRUE(Becomes(id, SagaState::kCancelled));
  EXPECT_EQ(Asked(), "pack unpack");
  EXPECT_TRUE(absl::IsFailedPrecondition(CancelSaga(*connection_, By(id)).status()));
}

TEST_F(EngineRuns, APauseLetsWhatIsInFlightComeToItsEnd) {
  RegisterSteps(WaitStep("first") + "," + SqlStep("reserve"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "first", StepState::kInFlight));
  ASSERT_TRUE(PauseSaga(*connection_, By(id)).ok());
  EXPECT_TRUE(Signal(id, "first"));
  ASSERT_TRUE(StepBecomes(id, "first", StepState::kSucceeded));
  EXPECT_EQ(StateOf(id), SagaState::kPaused);
  EXPECT_EQ(Ledger(), "");
  EXPECT_EQ(*ResumeSaga(*connection_, By(id)), "Running");
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
}

TEST_F(EngineRuns, AStepIsSkippedWhateverItIsAt) {
  RegisterSteps(WaitStep("first") + "," + SqlStep("reserve"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "first", StepState::kInFlight));
  EXPECT_EQ(*SkipStep(*connection_, By(id), "reserve"), "Ready");
  EXPECT_EQ(*SkipStep(*connection_, By(id), "first"), "InFlight");
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Ledger(), "");
}

TEST_F(EngineRuns, ACompletedSagaIsUndone) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(*CompensateSaga(*connection_, By(id)), "Completed");
  ASSERT_TRUE(Becomes(id, SagaState::kCancelled));
  EXPECT_EQ(Ledger(), "reserve ship unship unreserve");
}

TEST_F(EngineRuns, FunctionsOfTheProgram) {
  RegisterSteps(
      R"({"name": "score", "action": "fn:score", "request": {"n": "$.input.n"}, "idempotent": true,
      "retry": {"base": "10ms", "cap": "20ms"}})");
  std::atomic<int> calls = 0;
  Run(Options(),
      {{"score", [&](const StepCall& call, const std::stop_token&) -> absl::StatusOr<Json> {
          if (++calls == 1) throw std::runtime_error("first");
          if (call.request["n"] == 0) return InvalidArgument("nothing to score");
          return Json{{"key", call.key}};
        }}});
  const std::string id = Start({{"n", 1}});
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(StepOf(id, "score").result, (Json{{"key", id + "/score"}}));
  EXPECT_EQ(StepOf(id, "score").attempts, 1);
  const std::string refused = Start({{"n", 0}});
  ASSERT_TRUE(Becomes(refused, SagaState::kFailed));
  EXPECT_THAT(Show(refused).error, HasSubstr("nothing to score"));
}

TEST_F(EngineRuns, ACancelStopsAFunction) {
  RegisterSteps(
      R"({"name": "score", "action": "fn:score", "idempotent": true, "timeout": "100s"})");
  std::atomic<bool> begun = false;
  Run(Options(),
      {{"score", [&](const StepCall&, const std::stop_token& stop) -> absl::StatusOr<Json> {
          begun = true;
          Eventually([&] { return stop.stop_requested(); });
          return Json();
        }}});
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return begun.load(); }));
  ASSERT_TRUE(CancelSaga(*connection_, By(id)).ok());
  EXPECT_TRUE(Becomes(id, SagaState::kCancelled));
}

TEST_F(EngineRuns, OriginsThatAreNotAllowedAreNotCalled) {
  RegisterSteps(HttpStep("charge", true));
  EngineOptions options = Options();
  options.http.origins = {"https://pay.example.com"};
  Run(options);
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return StepOf(id, "charge").error_code == "SAGA.MISCONFIGURED"; }));
  EXPECT_EQ(Asked(), "");
}

TEST_F(EngineRuns, TagsAndDefinitionsHaveLimits) {
  RegisterSteps(HttpStep("pay", true, R"(, "concurrency_tag": "pay")"));
  EngineOptions options = Options();
  options.limits.tags["pay"] = 1;
  std::vector<std::string> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(Start());
  Run(options);
  for (const std::string& id : ids) ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(participant_.most_at_once(), 1);
}

// One that only waited for its turn would run out of time, and be in doubt though nobody was asked.
TEST_F(EngineRuns, ACallThatHasNoPlaceIsNotBegun) {
  RegisterSteps(HttpStep("charge", false));
  Tell("charge", {HttpTestServer::kHang});
  EngineOptions options = Options();
  options.http.concurrency = 1;
  Run(options);
  const std::string first = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "charge"; }));
  const std::string second = Start();
  ASSERT_TRUE(Becomes(second, SagaState::kCompleted));
  EXPECT_TRUE(StepOf(first, "charge").in_doubt);
  EXPECT_GE(*StepOf(second, "charge").started_at - *StepOf(first, "charge").started_at,
            std::chrono::seconds(1))
      << "it was begun when the first had come to its timeout";
}

TEST_F(EngineRuns, AFunctionThatHasNoThreadIsNotBegun) {
  RegisterSteps(SqlStep("reserve") +
                R"(,{"name": "score", "action": "fn:score", "timeout": "100s"})");
  std::atomic<bool> go = false;
  EngineOptions options = Options();
  options.function_threads = 1;
  options.workers = 1;
  Run(options,
      {{"score", [&](const StepCall&, const std::stop_token& stop) -> absl::StatusOr<Json> {
          Eventually([&] { return go || stop.stop_requested(); });
          return Json();
        }}});
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(Start());
    ASSERT_TRUE(StepBecomes(ids.back(), "reserve", StepState::kSucceeded));
    if (i > 0) continue;
    ASSERT_TRUE(StepBecomes(ids[0], "score", StepState::kInFlight));
  }
  // The one worker has come to the third: it is done with the second.
  EXPECT_EQ(StepOf(ids[1], "score").state, StepState::kReady);
  go = true;
  for (const std::string& id : ids) EXPECT_TRUE(Becomes(id, SagaState::kCompleted));
}

// It was done, and the answer lost; then something between us and the service says no.
TEST_F(EngineRuns, ARefusalSaysNothingOfATryBefore) {
  RegisterSteps(HttpStep("charge", true));
  Tell("charge", {HttpTestServer::Status(500), HttpTestServer::Status(404)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  EXPECT_EQ(Asked(), "charge charge uncharge");
}

// As docs/idempotency.md has services answer a key that is in flight.
TEST_F(EngineRuns, AServiceThatIsStillAtItIsAskedAgain) {
  RegisterSteps(HttpStep("charge", true));
  Tell("charge", {HttpTestServer::Status(500), HttpTestServer::Status(409, "Retry-After: 0\r\n")});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge charge charge");
}

TEST_F(EngineRuns, ABusyServiceLeavesNoDoubtOfACallThatMayNotBeMadeTwice) {
  RegisterSteps(HttpStep("charge", false));
  Tell("charge", {HttpTestServer::Status(409, "Retry-After: 0\r\n")});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge charge");
}

// A service signals in a transaction that takes its time.
TEST_F(EngineRuns, ASagaThatSomebodyHasLockedIsNoFaultOfTheDatabase) {
  RegisterSteps(R"({"name": "score", "action": "fn:score", "timeout": "100s"})");
  std::atomic<bool> go = false;
  EngineOptions options = Options();
  options.lock_timeout = Millis(50);
  Run(options,
      {{"score", [&](const StepCall&, const std::stop_token& stop) -> absl::StatusOr<Json> {
          Eventually([&] { return go || stop.stop_requested(); });
          return Json();
        }}});
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "score", StepState::kInFlight));
  auto other = connection_->Begin();
  ASSERT_TRUE(other->Run("SELECT 1 FROM lockstep.saga_work FOR UPDATE").ok());
  go = true;
  const auto waits = [&] {
    return db_.QueryInt("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0;
  };
  ASSERT_TRUE(Eventually(waits));
  ASSERT_TRUE(Eventually([&] { return !waits(); })) << "it has given up";
  ASSERT_TRUE(other->Rollback().ok());
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(events_.faults, 0);
}

// Whichever worker goes on after another's session was ended: the fault is over.
TEST_F(EngineRuns, AFaultOfTheDatabaseIsOverWhenAnyWorkerGetsOn) {
  RegisterSteps(SqlStep("reserve"));
  db_.Run(
      "CREATE TABLE shop.slow (); ALTER FUNCTION shop.note RENAME TO quick;"
      "CREATE FUNCTION shop.note(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN "
      "IF to_regclass('shop.slow') IS NOT NULL THEN PERFORM pg_sleep(30); END IF; "
      "RETURN shop.quick(request); END $$");
  Run();
  for (int i = 0; i < 8; ++i) {
    const std::string id = Start();
    const std::string asleep = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    ASSERT_TRUE(Eventually([&] { return db_.QueryInt("SELECT count(*) " + asleep) == 1; }));
    db_.Run("DROP TABLE shop.slow; SELECT pg_terminate_backend(pid) " + asleep);
    ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
    ASSERT_TRUE(Eventually([&] { return events_.faults > i && !events_.faulty; })) << i;
    db_.Run("CREATE TABLE shop.slow ()");
  }
}

TEST_F(EngineRuns, WhyItStoodStillIsForgottenWhenItGoesOn) {
  RegisterSteps(HttpStep("charge", false) + "," + WaitStep("approve"));
  Tell("charge", {HttpTestServer::Status(500)});
  Run();
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kPaused));
  EXPECT_THAT(Show(id).reason, HasSubstr("in doubt"));
  EXPECT_TRUE(Signal(id, "charge"));
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  EXPECT_EQ(Show(id).reason, "");
}

TEST_F(EngineRuns, AStepThatAsksNobodyTakesNoSignal) {
  RegisterSteps(HttpStep("charge", false));
  const std::string id = Start();
  const auto early = SignalSaga(*connection_, id, "charge", true, Json());
  EXPECT_TRUE(absl::IsFailedPrecondition(early.status())) << early.status();
  EXPECT_THAT(std::string(early.status().message()), HasSubstr("waits for no signal"));
  Tell("charge", {HttpTestServer::Status(500)});
  Run();
  ASSERT_TRUE(Becomes(id, SagaState::kPaused)) << "nothing settles its doubt unseen";
  EXPECT_TRUE(Signal(id, "charge"));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
}

TEST_F(EngineRuns, ADeadSagaThatGoesOnWithoutItsStepHasNotFailed) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship"), R"(, "on_failure": "stop")");
  Run();
  const std::string id = Start({{"reserve", "refuse"}});
  ASSERT_TRUE(Becomes(id, SagaState::kFailed));
  ASSERT_TRUE(SkipStep(*connection_, By(id), "reserve").ok());
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Show(id).error + Show(id).error_code + Show(id).reason, "");
  EXPECT_EQ(Show(id).failed_step, std::nullopt);
}

TEST_F(EngineRuns, AStopLetsACallComeToItsEnd) {
  RegisterSteps(HttpStep("charge", false) + "," + SqlStep("ship"));
  Engine& engine = Run();
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "charge"; }));
  engine.Stop();
  EXPECT_FALSE(StepOf(id, "charge").in_doubt) << Story(id);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.saga_work WHERE token IS NOT NULL"), 0);
  Run();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge");
}

TEST_F(EngineRuns, ItIsAServiceLikeAnyOther) {
  lockstep::testing::StressService(
      [&] {
        EngineOptions options = Options();
        options.drain = Millis(100);
        return std::make_unique<Engine>(options, events_);
      },
      nullptr, 3);
}

}  // namespace
}  // namespace lockstep::sagas
