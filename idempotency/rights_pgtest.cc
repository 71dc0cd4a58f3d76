// Each part under a role with its own rights and no more.
#include "idempotency/keys.h"
#include "idempotency/testing/keys_test.h"
#include "postgres/sql_error.h"

namespace lockstep::idempotency {
namespace {

class Rights : public KeysTest {
 protected:
  Rights() {
    for (const char* job : {"caller", "reader", "operator"}) {
      db_.Run(fmt::format("CREATE ROLE {} LOGIN", Role(job)));
      const absl::Status granted =
          ChangeRights(*connection_, std::string("grant_") + job, Role(job));
      EXPECT_TRUE(granted.ok()) << granted;
    }
  }
  ~Rights() override {
    for (const char* job : {"caller", "reader", "operator"}) {
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

TEST_F(Rights, ACallerCallsAndHasNoHandInTheTables) {
  const auto caller = As("caller");
  PostgresStore store(*caller);
  const auto go = store.CheckAndPut(Ask("k"));
  ASSERT_TRUE(go.ok()) << go.status();
  EXPECT_TRUE(store.Renew({{}, "k", go->token}, Millis(1'000)).ok());
  EXPECT_TRUE(store.Finish({{}, "k", go->token}, "d").ok());
  const auto failed = store.CheckAndPut(Ask("f"));
  EXPECT_TRUE(store.Fail({{}, "f", failed->token}, "x").ok());
  TakeAndDie("dead");
  Jump(Millis(61'000));
  EXPECT_EQ(store.CheckAndPut(Ask("dead"))->outcome, Outcome::kGo);
  EXPECT_TRUE(Denied(ReleaseKey(*caller, {.key = "k", .actor = "x"}).status()));
  EXPECT_TRUE(Denied(caller->Run("SELECT lockstep.idempotency_clean()")));
  for (const char* around : {"SELECT key FROM lockstep.idempotency_keys",
                             "UPDATE lockstep.idempotency_keys SET state = 'Lost'",
                             "INSERT INTO lockstep.idempotency_keys (key) VALUES ('x')",
                             "DELETE FROM lockstep.idempotency_keys"}) {
    EXPECT_TRUE(Denied(caller->Run(around))) << around;
  }
  EXPECT_TRUE(Denied(caller->Run("SELECT * FROM lockstep.idempotency_audit")));
  EXPECT_TRUE(Denied(caller->Run("CREATE TABLE lockstep.x ()")));
}

TEST_F(Rights, AReaderLooksAndChangesNothing) {
  TakeAndDie("k");
  const auto reader = As("reader");
  EXPECT_EQ(ListKeys(*reader, {})->size(), 1u);
  EXPECT_TRUE(ShowKey(*reader, {}, "k").ok());
  EXPECT_TRUE(Denied(PostgresStore(*reader).CheckAndPut(Ask("new")).status()));
  EXPECT_TRUE(Denied(ReleaseKey(*reader, {.key = "k", .actor = "x", .force = true}).status()));
}

TEST_F(Rights, AnOperatorReleasesAndCleansAndFinishesNothing) {
  const std::string token = TakeAndDie("k");
  const auto desk = As("operator");
  EXPECT_TRUE(Denied(PostgresStore(*desk).Finish({{}, "k", token}, "d")));
  EXPECT_TRUE(Denied(PostgresStore(*desk).CheckAndPut(Ask("new")).status()));
  EXPECT_TRUE(CleanKeys(*desk, 10).ok());
  EXPECT_TRUE(ReleaseKey(*desk, {.key = "k", .actor = "ann", .force = true}).ok());
  EXPECT_EQ(db_.Query("SELECT role FROM lockstep.idempotency_audit").Text(0, 0), Role("operator"));
  EXPECT_TRUE(Denied(desk->Run("DELETE FROM lockstep.idempotency_keys")));
  EXPECT_TRUE(Denied(desk->Run("DELETE FROM lockstep.idempotency_audit")));
  EXPECT_TRUE(
      Denied(desk->Run("INSERT INTO lockstep.idempotency_audit (actor, role, action, key, "
                       "state) VALUES ('x', 'somebody', 'release', 'k', 'Failed')")));
}

TEST_F(Rights, ARevokedRoleHasNothingLeft) {
  ASSERT_TRUE(ChangeRights(*connection_, "revoke_rights", Role("caller")).ok());
  EXPECT_TRUE(Denied(PostgresStore(*As("caller")).CheckAndPut(Ask("k")).status()));
  EXPECT_EQ(db_.QueryInt(fmt::format("SELECT has_schema_privilege('{}', 'lockstep', 'USAGE')::int",
                                     Role("caller"))),
            0);
}

// Outboxes and sagas live in the same schema: what is taken back of one leaves the others.
TEST_F(Rights, OutboxKeysAndSagasLeaveEachOtherTheSchema) {
  ASSERT_TRUE(postgres::Migrator(*connection_, "lockstep", sql::OutboxMigrations()).Up().ok());
  const std::string role = Role("caller");
  const auto may = [&] {
    return db_.QueryInt(fmt::format("SELECT has_schema_privilege('{}', 'lockstep', 'USAGE')::int",
                                    role)) == 1;
  };
  db_.Run("SELECT lockstep.create_outbox('shop.outbox')");
  ASSERT_TRUE(postgres::Migrator(*connection_, "lockstep", sql::SagaMigrations()).Up().ok());
  const auto outbox = [&](const char* function) {
    db_.Run(fmt::format("SELECT lockstep.{}('shop.outbox', '{}')", function, role));
  };
  outbox("grant_writer");
  outbox("revoke_rights");
  EXPECT_TRUE(may()) << "it is still a caller";
  EXPECT_EQ(PostgresStore(*As("caller")).CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
  outbox("grant_writer");
  ASSERT_TRUE(ChangeRights(*connection_, "revoke_rights", role).ok());
  EXPECT_TRUE(may()) << "it is still a writer";
  db_.Run(fmt::format("SELECT lockstep.saga_grant_starter('{}')", role));
  outbox("revoke_rights");
  EXPECT_TRUE(may()) << "it is still a starter of sagas";
  ASSERT_TRUE(ChangeRights(*connection_, "grant_caller", role).ok());
  ASSERT_TRUE(ChangeRights(*connection_, "revoke_rights", role).ok());
  EXPECT_TRUE(may()) << "as before";
  ASSERT_TRUE(ChangeRights(*connection_, "grant_caller", role).ok());
  db_.Run(fmt::format("SELECT lockstep.saga_revoke_rights('{}')", role));
  EXPECT_TRUE(may()) << "it is still a caller";
  ASSERT_TRUE(ChangeRights(*connection_, "revoke_rights", role).ok());
  EXPECT_FALSE(may());
}

}  // namespace
}  // namespace lockstep::idempotency
