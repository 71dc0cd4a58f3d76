#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"
#include "tests/support/silent_server.h"
#include "tests/support/test_database.h"

namespace lockstep::postgres {
namespace {

class ConnectionTest : public ::testing::Test {
 protected:
  testing::TestDatabase db_;
  std::unique_ptr<Connection> connection_ = db_.Connect();
};

TEST_F(ConnectionTest, DoesNotWaitForHoursForAMachineThatIsGone) {
  ConnectionOptions options;
  options.url = db_.url();
  const auto read = [](const Connection& connection, int option) {
    int value = 0;
    socklen_t size = sizeof(value);
    EXPECT_EQ(getsockopt(connection.socket(), IPPROTO_TCP, option, &value, &size), 0);
    return value;
  };
  const auto connection = Connection::Open(options);
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(read(**connection, TCP_KEEPIDLE), 10);
  EXPECT_EQ(read(**connection, TCP_USER_TIMEOUT), 30'000);
  options.url += (options.url.find('?') == std::string::npos ? "?" : "&");
  options.url += "tcp_user_timeout=5000";
  const auto own = Connection::Open(options);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(read(**own, TCP_USER_TIMEOUT), 5'000) << "the user's word wins";
}

TEST_F(ConnectionTest, TheServerDoesNotWaitForHoursForUs) {
  EXPECT_EQ(connection_->Execute("SHOW tcp_keepalives_idle")->Text(0, 0), "10");
  EXPECT_EQ(connection_->Execute("SHOW tcp_keepalives_interval")->Text(0, 0), "5");
  EXPECT_EQ(connection_->Execute("SHOW tcp_keepalives_count")->Text(0, 0), "3");
  EXPECT_EQ(connection_->Execute("SHOW tcp_user_timeout")->Text(0, 0), "30000");
}

TEST_F(ConnectionTest, OfSeveralHostsTakesOneThatCanBeWrittenTo) {
  const std::string role = db_.name() + "_reader";
  db_.Run(fmt::format(
      "CREATE ROLE {0} LOGIN; ALTER ROLE {0} SET default_transaction_read_only = on", role));
  const std::string one = db_.UrlAs(role);
  const size_t host = one.find('@') + 1;
  const size_t name = one.find('/', host) + 1;
  const std::string both = one.substr(0, name - 1) + "," + one.substr(host);
  const std::string port = one.substr(one.rfind(':') + 1, name - one.rfind(':') - 2);
  const auto opens = [](const std::string& url) { return Connection::Open({.url = url}).ok(); };
  EXPECT_TRUE(opens(one)) << "there is no other to be had";
  EXPECT_FALSE(opens(both));
  EXPECT_FALSE(opens(fmt::format("host=127.0.0.1,127.0.0.1 port={} user={} dbname={}", port, role,
                                 one.substr(name))));
  EXPECT_TRUE(opens(both + "?target_session_attrs=any")) << "the user's word wins";
  db_.Run("DROP ROLE " + role);
}

TEST_F(ConnectionTest, LeavesAServerThatWasDemoted) {
  ASSERT_TRUE(connection_->Run("SET default_transaction_read_only = on").ok());
  const absl::Status refused = connection_->Run("CREATE TABLE t (a int)");
  EXPECT_EQ(SqlState(refused), "25006");
  EXPECT_EQ(Classify(refused), ErrorClass::kTransient);
  EXPECT_TRUE(connection_->broken());
}

// The server's kernel takes what is sent, so no timeout of TCP strikes; its own statement_timeout
// does not either.
TEST_F(ConnectionTest, GivesUpAServerThatIsThereAndSaysNothing) {
  testing::SilentServer server(db_.url());
  const auto open = [&] {
    auto connection = Connection::Open({.url = server.url(), .statement_timeout = Millis(100)});
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  };
  const auto idle = open();
  const auto working = open();
  auto transaction = working->Begin();
  ASSERT_TRUE(transaction->Execute("SELECT pg_current_xact_id()").ok());
  server.silent = true;
  const absl::Status committed = transaction->Commit();
  EXPECT_EQ(Classify(committed), ErrorClass::kInDoubt) << committed;
  EXPECT_NE(MessageOf(committed).find("has not answered"), std::string_view::npos) << committed;
  EXPECT_TRUE(working->broken());
  server.silent = false;
  EXPECT_TRUE(idle->Execute("SELECT 1").ok()) << "only what waits for an answer is given up";
  EXPECT_TRUE(open()->Execute("SELECT 1").ok());
}

TEST_F(ConnectionTest, WaitsForAsLongAsItTakesWithoutALimit) {
  const auto connection = Connection::Open({.url = db_.url(), .statement_timeout = Millis(0)});
  ASSERT_TRUE(connection.ok());
  EXPECT_TRUE((*connection)->Execute("SELECT pg_sleep(6)").ok());
}

TEST_F(ConnectionTest, ReadsRowsWithColumnsByName) {
  const auto result = connection_->Execute(
      "SELECT n AS number, NULL::text AS nothing, 'x' || n AS word FROM generate_series(1, 3) AS "
      "n");
  ASSERT_TRUE(result.ok()) << result.status();
  std::string words;
  for (const Row row : *result) {
    words += row.String("word");
    EXPECT_EQ(row.OptionalText("nothing"), std::nullopt);
    EXPECT_EQ(row.OptionalInt("number"), row.Int("number"));
  }
  EXPECT_EQ(words, "x1x2x3");
  EXPECT_DEATH((*result)[0].Int("numbr"), "no column 'numbr'");
}

TEST_F(ConnectionTest, CarriesValuesBothWays) {
  const std::string bytes("\0\x01\xff'\\", 5);
  const auto result = connection_->Execute(
      "SELECT $1::text, $2::bigint, $3::bytea, $4::boolean, $5::text, $6::timestamptz", "it's",
      int64_t{1} << 62, Bytea{bytes}, true, nullptr,
      WallTime(std::chrono::microseconds(1'700'000'000'123'456)));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->Text(0, 0), "it's");
  EXPECT_EQ(result->Int(0, 1), int64_t{1} << 62);
  EXPECT_EQ(result->Bytes(0, 2), bytes);
  EXPECT_TRUE(result->Bool(0, 3));
  EXPECT_TRUE(result->IsNull(0, 4));
  EXPECT_EQ(result->Time(0, 5), WallTime(std::chrono::microseconds(1'700'000'000'123'456)));
}

TEST_F(ConnectionTest, UnnestsArraysOfAnything) {
  Array text;
  text.Add("a\"b\\c,{d}");
  text.AddNull();
  Array bytes;
  bytes.AddBytea(std::string("\0\\\"", 3));
  bytes.AddBytea("");
  const auto result = connection_->Execute(
      "SELECT * FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY", text, bytes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->Text(0, 0), "a\"b\\c,{d}");
  EXPECT_TRUE(result->IsNull(1, 0));
  EXPECT_EQ(result->Bytes(0, 1), std::string("\0\\\"", 3));
  EXPECT_EQ(result->Bytes(1, 1), "");
}

// It would be cut off there, and the rest of a statement with it.
TEST_F(ConnectionTest, RefusesATextWithANul) {
  using namespace std::string_literals;
  constexpr Statement kEcho{"echo", "SELECT $1::text AS text"};
  const std::string text = "a\0b"s;
  const auto refused = [](const absl::Status& status) {
    return SqlState(status) == "22021" && Classify(status) == ErrorClass::kData;
  };
  EXPECT_TRUE(refused(connection_->Execute("SELECT $1::text", text).status()));
  EXPECT_TRUE(
      refused(connection_->Execute("SELECT $1::text[]", std::vector<std::string>{text}).status()));
  EXPECT_TRUE(refused(connection_->Execute(kEcho, text).status()));
  ASSERT_TRUE(connection_->Execute(kEcho, "known from now on").ok());
  auto called = connection_->Begin();
  EXPECT_TRUE(called->Defer(kEcho, "before it").ok());
  EXPECT_TRUE(refused(called->Execute(kEcho, text).status()));
  EXPECT_FALSE(called->Commit().ok());
  auto deferred = connection_->Begin();
  EXPECT_TRUE(refused(deferred->Defer(kEcho, text)));
  EXPECT_FALSE(deferred->Commit().ok());
  EXPECT_EQ(connection_->Execute("SELECT $1::bytea", Bytea{text})->Bytes(0, 0), text);
}

TEST_F(ConnectionTest, PreparesAStatementOnce) {
  constexpr Statement kAdd{"add", "SELECT $1::int + 1"};
  for (int i = 0; i < 3; ++i) {
    const auto result = connection_->Execute(kAdd, i);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->Int(0, 0), i + 1);
  }
  EXPECT_EQ(connection_->Execute("SELECT count(*) FROM pg_prepared_statements WHERE name = 'add'")
                ->Int(0, 0),
            1);
}

TEST_F(ConnectionTest, RollsBackWhatWasNotCommitted) {
  db_.Run("CREATE TABLE t (a int)");
  {
    auto transaction = connection_->Begin();
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(transaction->Execute("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t"), 0);
}

TEST_F(ConnectionTest, DoesNotCommitAfterAFailedStatement) {
  db_.Run("CREATE TABLE t (a int)");
  auto transaction = connection_->Begin();
  ASSERT_TRUE(transaction->Execute("INSERT INTO t VALUES (1)").ok());
  EXPECT_FALSE(transaction->Execute("INSERT INTO t VALUES (1/0)").ok());
  const absl::Status committed = transaction->Commit();
  EXPECT_EQ(SqlState(committed), "22012");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t"), 0);
  EXPECT_TRUE(connection_->Execute("SELECT 1").ok());
}

TEST_F(ConnectionTest, BeginsAndDefersInTheRoundTripOfTheNextStatement) {
  db_.Run("CREATE TABLE t (a text CHECK (a <> 'no'))");
  constexpr Statement kAdd{"add", "INSERT INTO t VALUES ($1)"};
  constexpr Statement kSeen{"seen",
                            "SELECT query, count(*) OVER () FROM pg_stat_activity, t "
                            "WHERE pid = pg_backend_pid() AND a = $1"};
  for (const bool known : {false, true}) {  // to the server, by its name
    Transaction transaction = connection_->BeginLater();
    ASSERT_TRUE(transaction.Defer(kAdd, "it's").ok());
    const auto seen = transaction.Execute(kSeen, "it's");
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(seen->Int(0, 1), 1) << "what was deferred comes before";
    EXPECT_EQ(seen->Text(0, 0).starts_with("BEGIN; EXECUTE \"add\"('it''s'); EXECUTE"), known)
        << seen->Text(0, 0);
    ASSERT_TRUE(transaction.Rollback().ok());
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t"), 0) << "there was a BEGIN before all of it";
  {
    Transaction transaction = connection_->BeginLater();
    ASSERT_TRUE(transaction.Defer(kAdd, "no").ok());
    EXPECT_EQ(SqlState(transaction.Execute("SELECT 1").status()), "23514");
    EXPECT_EQ(SqlState(transaction.Commit()), "23514");
  }
  { connection_->BeginLater(); }  // never sent, so there is nothing to take back
  ASSERT_TRUE(connection_->Begin().ok()) << "nothing of it is left over";
}

TEST_F(ConnectionTest, SendsDeferredStatementsWithTheCommit) {
  db_.Run("CREATE TABLE t (a text, b text, CHECK (a <> 'no'))");
  constexpr Statement kAdd{"add", "INSERT INTO t VALUES ($1, $2)"};
  const auto add = [&](std::string_view a) {
    auto transaction = connection_->Begin();
    EXPECT_TRUE(transaction->Defer(kAdd, a, nullptr).ok());
    EXPECT_TRUE(transaction->Defer(kAdd, a, nullptr).ok());
    return transaction->Commit();
  };
  for (const char* value : {"first", "it's", "a\\'b"}) EXPECT_TRUE(add(value).ok()) << value;
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t WHERE b IS NULL"), 6);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t WHERE a = $1", Params("a\\'b")), 2);
  EXPECT_EQ(SqlState(add("no")), "23514");
  EXPECT_TRUE(add("yes").ok()) << "and it can go on";
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM t WHERE a = 'no'"), 0);
}

TEST_F(ConnectionTest, QuotesNoValueInAnErrorsDetail) {
  db_.Run("CREATE TABLE t (a text PRIMARY KEY); INSERT INTO t VALUES ('secret')");
  const auto result = connection_->Execute("INSERT INTO t VALUES ($1)", "secret");
  EXPECT_EQ(Classify(result.status()), ErrorClass::kData);
  EXPECT_EQ(MessageOf(result.status()).find("secret"), std::string_view::npos);
}

TEST_F(ConnectionTest, StaysBrokenAfterItsBackendWasEnded) {
  db_.Query("SELECT pg_terminate_backend($1)", Params(connection_->backend_pid()));
  const auto result = connection_->Execute("SELECT 1");
  EXPECT_EQ(Classify(result.status()), ErrorClass::kTransient) << result.status();
  EXPECT_TRUE(connection_->broken());
  const auto again = connection_->Execute("SELECT $1::int", 1);
  EXPECT_EQ(Classify(again.status()), ErrorClass::kTransient) << "it reconnected by itself";
  EXPECT_THAT(std::string(MessageOf(again.status())), ::testing::HasSubstr("lost"));
}

TEST_F(ConnectionTest, IsInDoubtWhenLostDuringCommit) {
  auto transaction = connection_->Begin();
  ASSERT_TRUE(transaction->Execute("SELECT 1").ok());
  db_.Query("SELECT pg_terminate_backend($1)", Params(connection_->backend_pid()));
  EXPECT_EQ(Classify(transaction->Commit()), ErrorClass::kInDoubt);
}

TEST_F(ConnectionTest, HearsNotificationsOnItsSocket) {
  ASSERT_TRUE(connection_->Listen("wake").ok());
  EXPECT_TRUE(connection_->TakeNotifications()->empty());
  db_.Run("NOTIFY wake, 'hello'");
  pollfd waiting{connection_->socket(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 10'000), 1);
  const auto heard = connection_->TakeNotifications();
  ASSERT_TRUE(heard.ok()) << heard.status();
  ASSERT_EQ(heard->size(), 1U);
  EXPECT_EQ((*heard)[0].channel, "wake");
  EXPECT_EQ((*heard)[0].payload, "hello");
}

TEST(ConnectionOpen, SaysWhereItCouldNotConnect) {
  ConnectionOptions options;
  options.url = "postgresql://someone:hidden@127.0.0.1:1/nowhere";
  const auto opened = Connection::Open(options);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(Classify(opened.status()), ErrorClass::kTransient);
  EXPECT_NE(MessageOf(opened.status()).find("127.0.0.1"), std::string_view::npos)
      << opened.status();
  EXPECT_EQ(MessageOf(opened.status()).find("hidden"), std::string_view::npos);
}

// It is somebody's own text, which may hold anything, and would be kept in dead letters and logs.
TEST_F(ConnectionTest, DoesNotRepeatWhatATriggerRaises) {
  for (const std::string state : {"P0001", "P0004", "AB123", "U0001", "99000"}) {
    const absl::Status failed = connection_->Run(
        "DO $$ BEGIN RAISE EXCEPTION 'secret of %', 'ann' USING ERRCODE = '" + state + "'; END $$");
    EXPECT_EQ(SqlState(failed), state);
    EXPECT_EQ(MessageOf(failed).find("secret"), std::string_view::npos) << failed;
    EXPECT_EQ(MessageOf(failed).find("ann"), std::string_view::npos) << failed;
    EXPECT_NE(MessageOf(failed).find("(RAISE, " + state + "); the server's log"),
              std::string_view::npos)
        << failed;
  }
}

// As our own functions do, whose words are for whoever called them.
TEST_F(ConnectionTest, RepeatsWhatIsRaisedUnderACodeOfPostgres) {
  const absl::Status failed = connection_->Run(
      "DO $$ BEGIN RAISE EXCEPTION 'no such role' USING ERRCODE = 'undefined_object'; END $$");
  EXPECT_NE(MessageOf(failed).find("no such role"), std::string_view::npos) << failed;
}

TEST_F(ConnectionTest, KnowsEveryErrorByItsSqlState) {
  for (const char* state : {"42501", "40001", "40P01", "40003", "53100", "53200", "53300", "57014",
                            "22012", "42P01", "42703", "08P01", "P0002"}) {
    const absl::Status failed =
        connection_
            ->Execute(fmt::format("DO $$ BEGIN RAISE 'x' USING ERRCODE = '{}'; END $$", state))
            .status();
    // libpqxx 6 keeps no more of these two than their class.
    if (SqlState(failed).substr(0, 2) == "08" || std::string_view(state) == "40003") {
      EXPECT_EQ(Classify(failed), ErrorClass::kTransient) << state;
    } else {
      EXPECT_EQ(SqlState(failed), state);
    }
  }
}

}  // namespace
}  // namespace lockstep::postgres
