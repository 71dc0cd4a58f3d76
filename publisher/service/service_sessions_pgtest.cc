// A publisher's sessions with Postgres: its rights, poolers, and others' locks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "platform/status.h"
#include "publisher/observe/relay_status.h"
#include "publisher/testing/service_test.h"
#include "tests/support/eventually.h"
#include "tests/support/silent_server.h"
#include "tests/support/transaction_pooler.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ServiceTest, RunsWithThePublishersRightsAlone) {
  const std::string role = db_.name() + "_relay";
  db_.Run(fmt::format(
      "CREATE ROLE {0} LOGIN; SELECT lockstep.grant_publisher('shop.outbox', '{0}')", role));
  PublisherConfig config = Config();
  config.database = db_.UrlAs(role);
  config.tables[0].single_active = false;  // it has to change the number of shards
  config.cleaner.interval = config.cleaner.retention = Millis(10);
  config.metrics.backlog_interval = Millis(10);
  config.heartbeat.topics = {"shop.events"};
  ::testing::internal::CaptureStderr();
  const auto running = Make(config);
  const absl::Status started = running->service->Start();
  EnqueueMany("k", 5);
  ASSERT_TRUE(testing::Eventually([&] { return Count("true") == 0; })) << "published and cleaned";
  const bool beat = sink_.Await([&] { return !Heartbeats(sink_).empty(); });
  running->service->Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(started.ok()) << started;
  EXPECT_TRUE(beat);
  EXPECT_THAT(log, Not(HasSubstr("level=warn"))) << log;
  EXPECT_EQ(db_.QueryInt("SELECT shards FROM lockstep.outboxes"), 16);
  db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", role));
}

TEST_F(ServiceTest, SaysWhichForeignSessionHoldsAShard) {
  auto holder =
      postgres::Connection::Open({.url = db_.url(), .application_name = "a forgotten psql"});
  ASSERT_TRUE(holder.ok());
  ASSERT_TRUE(
      (*holder)->Run("SELECT pg_advisory_lock(lockstep.lock_key('shard', 'shop.outbox', 0))").ok());
  Enqueue("k", 1);
  ::testing::internal::CaptureStderr();
  const auto running = Make(Config());
  ASSERT_TRUE(running->service->Start().ok());
  const std::string session =
      fmt::format("pid {}, role {}, application \"a forgotten psql\"", (*holder)->backend_pid(),
                  db_.Query("SELECT session_user").Text(0, 0));
  EXPECT_TRUE(testing::Eventually([&] {
    return running->service->Tables()[0].fault.find(session) != std::string::npos;
  })) << running->service->Tables()[0].fault;
  holder->reset();
  EXPECT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  EXPECT_TRUE(testing::Eventually([&] { return running->service->Tables()[0].fault.empty(); }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("a session that is no publisher holds a shard"));
}

// Whether it stops for a pooler: it says so and takes no shard.
bool RefusesPooler(const PublisherService& service) {
  const auto reasons = service.NotReady();
  return std::any_of(reasons.begin(), reasons.end(), [](const std::string& reason) {
    return reason.find("pooler") != std::string::npos;
  });
}

// Its server answers nothing, not even an error: the silence alone must be heard.
TEST_F(ServiceTest, ARelayThatHangsWithItsDatabaseIsNotReady) {
  auto server = std::make_unique<testing::SilentServer>(db_.url());
  PublisherConfig config = Config();
  config.database = server->url();
  config.ready_grace = Millis(0);
  config.ownership.watchdog = Millis(1'000);
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  const auto reasons = [&] {
    return fmt::format("{}", fmt::join(running->service->NotReady(), "; "));
  };
  ASSERT_TRUE(testing::Eventually([&] { return reasons().empty(); })) << reasons();
  server->silent = true;
  EXPECT_TRUE(testing::Eventually([&] {
    return reasons().find("shop.outbox: its loop has stood still") != std::string::npos;
  })) << reasons();
  server.reset();  // or it would wait for its answers when it stops
}

TEST_F(ServiceTest, ATransactionPoolerIsRefused) {
  for (const int sessions : {1, 2, 3}) {
    testing::TransactionPooler pooler(db_.url(), sessions);
    PublisherConfig config = Config();
    config.database = pooler.url();
    config.ready_grace = Millis(0);
    const auto running = Make(config);
    const absl::Status started = running->service->Start();
    // By luck the pooler may hand out the same sessions for as long as the start looks.
    if (started.ok() && sessions > 1) {
      ASSERT_TRUE(testing::Eventually([&] { return RefusesPooler(*running->service); }));
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << sessions << ": " << started;
    EXPECT_THAT(std::string(MessageOf(started)), HasSubstr("transaction pooler"));
  }
}

TEST_F(ServiceTest, APoolInSessionModeServesUntilItPoolsTransactions) {
  testing::TransactionPooler pooler(db_.url(), 20);
  pooler.pools_transactions = false;
  PublisherConfig config = Config();
  config.database = pooler.url();
  config.ready_grace = Millis(0);
  const auto running = Make(config);
  const absl::Status started = running->service->Start();
  ASSERT_TRUE(started.ok()) << started;
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  pooler.pools_transactions = true;
  ASSERT_TRUE(testing::Eventually([&] { return RefusesPooler(*running->service); }));
  running->service->Stop();
}

}  // namespace
}  // namespace lockstep::publisher
