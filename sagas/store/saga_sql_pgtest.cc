// What the database itself holds: transitions, sizes, words; and each part under a role with its
// own rights and no more.
#include "postgres/sql_error.h"
#include "sagas/store/work_store.h"
#include "sagas/testing/engine_test.h"

namespace lockstep::sagas {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the fixture's words
using ::testing::HasSubstr;

class SagaSql : public EngineTest {
 protected:
  SagaSql() { RegisterSteps(SqlStep("reserve") + "," + WaitStep("approve")); }
  absl::Status Try(const std::string& sql) { return connection_->Run(sql); }
};

TEST_F(SagaSql, TransitionsThatDoNotExistAreRefused) {
  const std::string all[] = {"Ready", "InFlight", "Succeeded", "Failed", "Compensated", "Skipped"};
  const std::set<std::pair<std::string, std::string>> legal = {
      {"Ready", "InFlight"},  {"Ready", "Succeeded"},  {"Ready", "Failed"},
      {"Ready", "Skipped"},   {"InFlight", "Ready"},   {"InFlight", "Succeeded"},
      {"InFlight", "Failed"}, {"InFlight", "Skipped"}, {"Succeeded", "Skipped"},
      {"Failed", "Ready"},    {"Failed", "Skipped"}};
  const std::string id = Start();
  for (const std::string& from : all) {
    for (const std::string& to : all) {
      if (from == to) continue;
      // Past the trigger, to where it begins.
      db_.Run(fmt::format(
          "ALTER TABLE lockstep.saga_steps DISABLE TRIGGER ALL; UPDATE lockstep.saga_steps SET "
          "state = '{}' "
          "WHERE saga = '{}' AND step = 0; ALTER TABLE lockstep.saga_steps ENABLE TRIGGER ALL",
          from, id));
      const absl::Status changed = Try(fmt::format(
          "UPDATE lockstep.saga_steps SET state = '{}' WHERE saga = '{}' AND step = 0", to, id));
      EXPECT_EQ(changed.ok(), legal.contains({from, to})) << from << " > " << to << ": " << changed;
      if (!changed.ok()) {
        EXPECT_EQ(postgres::SqlState(changed), "LS006");
      }
    }
  }
}

TEST_F(SagaSql, AStateOfASagaComesFromWhereItMay) {
  const std::string all[] = {"Running", "Compensating", "Completed",
                             "Failed",  "Cancelled",    "Paused"};
  const std::set<std::pair<std::string, std::string>> legal = {
      {"Running", "Compensating"},   {"Running", "Completed"},   {"Running", "Failed"},
      {"Running", "Cancelled"},      {"Running", "Paused"},      {"Compensating", "Failed"},
      {"Compensating", "Cancelled"}, {"Compensating", "Paused"}, {"Completed", "Compensating"},
      {"Paused", "Running"}};
  const std::string id = Start();
  for (const std::string& from : all) {
    for (const std::string& to : all) {
      if (from == to) continue;
      db_.Run(
          fmt::format("ALTER TABLE lockstep.sagas DISABLE TRIGGER ALL; UPDATE lockstep.sagas SET "
                      "state = '{0}', "
                      "paused_from = CASE WHEN '{0}' = 'Paused' THEN 'Running' END, "
                      "ended_at = CASE WHEN '{0}' IN ('Completed', 'Failed', 'Cancelled') THEN "
                      "now() END WHERE id = '{1}'; "
                      "ALTER TABLE lockstep.sagas ENABLE TRIGGER ALL",
                      from, id));
      const absl::Status changed =
          Try(fmt::format("UPDATE lockstep.sagas SET state = '{}' WHERE id = '{}'", to, id));
      EXPECT_EQ(changed.ok(), legal.contains({from, to})) << from << " > " << to << ": " << changed;
    }
  }
}

TEST_F(SagaSql, EveryChangeOfAStateStandsInTheAudit) {
  const std::string id = Start();
  db_.Run(
      fmt::format("UPDATE lockstep.saga_steps SET state = 'Succeeded', attempts = 2 WHERE saga = "
                  "'{}' AND step = 0",
                  id));
  const auto audit = AuditOf(*connection_, id);
  ASSERT_EQ(audit->size(), 2u);
  EXPECT_EQ(audit->at(0).action, "start");
  EXPECT_EQ(audit->at(1).step, "reserve");
  EXPECT_EQ(audit->at(1).from + ">" + audit->at(1).to, "Ready>Succeeded");
  EXPECT_EQ(audit->at(1).attempts, 2);
}

TEST_F(SagaSql, ASagaKeepsTheDefinitionThatItBeganWith) {
  const std::string old = Start();
  RegisterSteps(SqlStep("other"));
  const std::string fresh = Start();
  EXPECT_EQ(Show(old).version, 1);
  EXPECT_EQ(Show(old).steps.size(), 2u);
  EXPECT_EQ(Show(fresh).version, 2);
}

TEST_F(SagaSql, AVersionIsRegisteredOnce) {
  auto definition = GetDefinition(*connection_, "order");
  ASSERT_TRUE(definition.ok()) << definition.status();
  EXPECT_FALSE(*Register(*connection_, *definition, "bob"));
  definition->timeout = Millis(60'000);
  const auto other = Register(*connection_, *definition, "bob");
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("raise the version"));
}

TEST_F(SagaSql, WhatIsTooLargeOrUnknownIsRefused) {
  NewSaga saga{.definition = "order", .input = {{"text", std::string(65'536, 'x')}}};
  EXPECT_TRUE(absl::IsInvalidArgument(StartSaga(*connection_, saga).status()));
  saga.input = {{"text", "x"}};
  saga.definition = "nothing";
  EXPECT_TRUE(absl::IsNotFound(StartSaga(*connection_, saga).status()));
  saga.definition = "order";
  saga.ttl = Millis(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(StartSaga(*connection_, saga).status()));
  const std::string id = Start();
  EXPECT_TRUE(absl::IsInvalidArgument(
      SignalSaga(*connection_, id, "approve", true, std::string(16'384, 'x')).status()));
}

TEST_F(SagaSql, AStartRollsBackWithItsTransaction) {
  {
    auto transaction = connection_->Begin();
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(StartSaga(*transaction, {.definition = "order", .input = Json::object()}).ok());
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.sagas") +
                db_.QueryInt("SELECT count(*) FROM lockstep.saga_work"),
            0);
}

TEST_F(SagaSql, OldSagasGoWithAllThatBelongsToThemAndOthersStay) {
  Run();
  const std::string old = Start();
  const std::string open = Start();
  ASSERT_TRUE(StepBecomes(old, "approve", StepState::kInFlight));
  ASSERT_TRUE(Signal(old, "approve"));
  ASSERT_TRUE(Becomes(old, SagaState::kCompleted));
  EXPECT_EQ(*CleanSagas(*connection_, Millis(3'600'000), 10), 0);
  EXPECT_EQ(*CleanSagas(*connection_, Millis(-1), 10), 1);
  EXPECT_TRUE(absl::IsNotFound(ShowSaga(*connection_, old).status()));
  EXPECT_EQ(db_.QueryInt("SELECT count(DISTINCT saga) FROM lockstep.saga_audit"), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(DISTINCT saga) FROM lockstep.saga_steps"), 1);
  EXPECT_EQ(Show(open).state, SagaState::kRunning);
}

// Where some end every minute there is never a look that finds none of them.
TEST_F(SagaSql, OldDeadSagasGoBesideTheOthers) {
  const std::string done = Start();
  const std::string dead = Start();
  db_.Run(
      fmt::format("SELECT lockstep.saga_save('{}', 'Completed', 'r', NULL, NULL, NULL, false), "
                  "lockstep.saga_save('{}', 'Failed', 'r', 'e', 'C', 0, true)",
                  done, dead));
  EXPECT_EQ(*CleanSagas(*connection_, Millis(-1), 10, Millis(-1)), 2);
}

TEST_F(SagaSql, HowLongTheLongestHasBeenDueIsCounted) {
  EXPECT_EQ(CountSagas(*connection_)->at(0).due_for, Millis(0));
  Start();
  const std::string waits = Start();
  db_.Run("UPDATE lockstep.saga_work SET run_at = 'infinity'");
  EXPECT_EQ(CountSagas(*connection_)->at(0).due_for, Millis(0));
  db_.Run(fmt::format(
      "UPDATE lockstep.saga_work SET run_at = now() - interval '1 hour' WHERE saga = '{}'", waits));
  EXPECT_GE(CountSagas(*connection_)->at(0).due_for, Millis(3'600'000));
  ASSERT_EQ(LeaseStore(*connection_).Claim("x", Millis(15'000), 1, {})->size(), 1u);
  EXPECT_EQ(CountSagas(*connection_)->at(0).due_for, Millis(0));
}

// A person's transaction must not keep an orchestrator from ending.
TEST_F(SagaSql, WhatSomebodyHasLockedIsNotWaitedForAtTheEnd) {
  Start();
  Start();
  const auto claimed = LeaseStore(*connection_).Claim("x", Millis(15'000), 10, {});
  ASSERT_EQ(claimed->size(), 2u);
  const auto other = db_.Connect();
  auto transaction = other->Begin();
  ASSERT_TRUE(PauseSaga(*transaction, By(claimed->at(0).lease.saga)).ok());
  ASSERT_TRUE(connection_->Run("SET lock_timeout = '100ms'").ok());
  EXPECT_TRUE(
      LeaseStore(*connection_).ReleaseAll({claimed->at(0).lease, claimed->at(1).lease}).ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.saga_work WHERE token IS NULL"), 1);
}

TEST_F(SagaSql, AQuarantinedSagaIsNotReplayed) {
  const std::string id = Start();
  db_.Run(
      fmt::format("UPDATE lockstep.saga_steps SET state = 'Failed' WHERE saga = '{0}' AND step = 0;"
                  "SELECT lockstep.saga_save('{0}', 'Failed', 'r', 'e', 'C', 0, true)",
                  id));
  EXPECT_TRUE(*QuarantineSaga(*connection_, By(id)));
  EXPECT_FALSE(*QuarantineSaga(*connection_, By(id)));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ReplaySaga(*connection_, By(id), ReplayInto::kFailedStep).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(CompensateSaga(*connection_, By(id)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(RetryStep(*connection_, By(id)).status()));
  const auto skipped = SkipStep(*connection_, By(id), "reserve");
  EXPECT_THAT(std::string(skipped.status().message()), HasSubstr("it is in quarantine"));
  EXPECT_TRUE(*QuarantineSaga(*connection_, By(id), /*release=*/true));
  EXPECT_TRUE(ReplaySaga(*connection_, By(id), ReplayInto::kFailedStep).ok());
}

// Rights ------------------------------------------------------------------------------------------

class SagaRights : public SagaSql {
 protected:
  SagaRights() {
    for (const char* job : {"starter", "reader", "operator", "orchestrator"}) {
      db_.Run(fmt::format("CREATE ROLE {} LOGIN", Role(job)));
      const absl::Status granted =
          ChangeSagaRights(*connection_, std::string("grant_") + job, Role(job));
      EXPECT_TRUE(granted.ok()) << granted;
    }
  }
  ~SagaRights() override {
    engines_.clear();
    for (const char* job : {"starter", "reader", "operator", "orchestrator"}) {
      db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", Role(job)));
    }
  }
  std::string Role(const std::string& job) { return db_.name() + "_" + job; }
  std::unique_ptr<postgres::Connection> As(const std::string& job) {
    auto connection = postgres::Connection::Open({.url = db_.UrlAs(Role(job))});
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  }
  static bool Denied(const absl::Status& status) { return postgres::SqlState(status) == "42501"; }
};

TEST_F(SagaRights, AStarterStartsAndSignalsAndReadsNothing) {
  const auto session = As("starter");
  const auto id = StartSaga(*session, {.definition = "order", .input = {{"n", 1}}, .key = "k"});
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*StartSaga(*session, {.definition = "order", .input = {{"n", 1}}, .key = "k"}), *id);
  EXPECT_TRUE(*SignalSaga(*session, *id, "approve", true, Json()));
  EXPECT_TRUE(Denied(ShowSaga(*session, *id).status()));
  EXPECT_TRUE(Denied(CancelSaga(*session, By(*id)).status()));
  EXPECT_TRUE(Denied(session->Run("SELECT lockstep.saga_claim('x', '1 s', 1)")));
  EXPECT_TRUE(
      Denied(session->Run("INSERT INTO lockstep.saga_audit (saga, actor, action) VALUES "
                          "(gen_random_uuid(), 'x', 'y')")));
  EXPECT_EQ(db_.Query("SELECT role FROM lockstep.saga_audit LIMIT 1").Text(0, 0), Role("starter"));
}

TEST_F(SagaRights, AReaderLooksAndChangesNothing) {
  const std::string id = Start();
  const auto session = As("reader");
  EXPECT_TRUE(ShowSaga(*session, id).ok());
  EXPECT_TRUE(AuditOf(*session, id).ok());
  EXPECT_TRUE(CountSagas(*session).ok());
  EXPECT_TRUE(ListDefinitions(*session).ok());
  EXPECT_TRUE(
      Denied(StartSaga(*session, {.definition = "order", .input = Json::object()}).status()));
  EXPECT_TRUE(Denied(SignalSaga(*session, id, "approve", true, Json()).status()));
  EXPECT_TRUE(Denied(session->Run("SELECT lockstep.saga_clean('1 s')")));
  EXPECT_TRUE(Denied(session->Run("UPDATE lockstep.sagas SET reason = ''")));
}

TEST_F(SagaRights, AnOperatorChangesTheCourseAndWritesNoTable) {
  const auto session = As("operator");
  const auto id = StartSaga(*session, {.definition = "order", .input = Json::object()});
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(PauseSaga(*session, By(*id)).ok());
  EXPECT_TRUE(ResumeSaga(*session, By(*id)).ok());
  EXPECT_TRUE(SkipStep(*session, By(*id), "reserve").ok());
  EXPECT_TRUE(CancelSaga(*session, By(*id)).ok());
  EXPECT_FALSE(*Register(*session, *GetDefinition(*session, "order"), "x"));
  EXPECT_TRUE(CleanSagas(*session, Millis(1'000'000), 10).ok());
  EXPECT_TRUE(Denied(session->Run("UPDATE lockstep.sagas SET state = 'Completed'")));
  EXPECT_TRUE(Denied(session->Run("DELETE FROM lockstep.saga_audit")));
  EXPECT_TRUE(Denied(session->Run("SELECT lockstep.saga_claim('x', '1 s', 1)")));
  EXPECT_EQ(
      db_.Query("SELECT actor || role FROM lockstep.saga_audit WHERE action = 'pause'").Text(0, 0),
      "bob" + Role("operator"));
}

TEST_F(SagaRights, AnOrchestratorRunsSagasWithItsOwnRightsAndNoMore) {
  db_.Run(fmt::format("GRANT USAGE ON SCHEMA shop TO {0}; GRANT INSERT ON shop.ledger TO {0}",
                      Role("orchestrator")));
  RegisterSteps(SqlStep("reserve") + "," + BusStep("announce") + "," + HttpStep("charge", true));
  db_.Run(fmt::format("SELECT lockstep.grant_writer('shop.outbox', '{}')", Role("orchestrator")));
  EngineOptions options = Options();
  options.database = db_.UrlAs(Role("orchestrator"));
  EXPECT_TRUE(Engine(options, events_).Check().ok());
  Run(options);
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  const auto session = As("orchestrator");
  EXPECT_TRUE(CleanSagas(*session, Millis(1'000'000), 10).ok());
  EXPECT_TRUE(Denied(session->Run("UPDATE lockstep.saga_work SET run_at = now()")));
  EXPECT_TRUE(
      Denied(StartSaga(*session, {.definition = "order", .input = Json::object()}).status()));
  EXPECT_TRUE(Denied(CancelSaga(*session, By(id)).status()));
}

TEST_F(SagaRights, ARevokedRoleHasNothingLeft) {
  for (const char* job : {"starter", "reader", "operator", "orchestrator"}) {
    ASSERT_TRUE(ChangeSagaRights(*connection_, "revoke_rights", Role(job)).ok());
    EXPECT_EQ(db_.QueryInt(fmt::format(
                  "SELECT has_schema_privilege('{}', 'lockstep', 'USAGE')::int", Role(job))),
              0);
    EXPECT_EQ(db_.QueryInt(fmt::format("SELECT count(*) FROM pg_proc p, aclexplode(p.proacl) a "
                                       "WHERE a.grantee = '{}'::regrole",
                                       Role(job))),
              0);
  }
}

TEST_F(SagaRights, NobodyMayWhatWasNotGranted) {
  db_.Run(
      fmt::format("CREATE ROLE {0} LOGIN; GRANT USAGE ON SCHEMA lockstep TO {0}", Role("nobody")));
  const auto may = db_.Query(
      fmt::format("SELECT coalesce(string_agg(proname, ' ' ORDER BY proname), '') FROM pg_proc "
                  "WHERE pronamespace = 'lockstep'::regnamespace "
                  "AND proname LIKE 'saga\\_%' AND has_function_privilege('{}', oid, 'EXECUTE')",
                  Role("nobody")));
  EXPECT_EQ(
      may.Text(0, 0),
      "saga_actor saga_grant_operator saga_grant_orchestrator saga_grant_reader saga_grant_starter "
      "saga_refuse saga_revoke_rights saga_wake_key");
  db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", Role("nobody")));
}

}  // namespace
}  // namespace lockstep::sagas
