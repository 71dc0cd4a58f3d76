// A whole publisher in this process, on a real Postgres and the emulator.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "platform/log/log.h"
#include "platform/status.h"
#include "publisher/dispatch/in_process_bus.h"
#include "publisher/observe/relay_status.h"
#include "publisher/testing/service_test.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_bus_admin.h"
#include "tests/support/service_stress.h"
#include "tests/support/silent_server.h"
#include "tests/support/transaction_pooler.h"

namespace lockstep::publisher {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(ServiceTest, IsAServiceLikeAnyOther) {
  const PublisherConfig config = Config();
  // The service needs the rest of `Running`, which lives until the end of the test.
  std::vector<std::unique_ptr<Running>> all;
  testing::StressService(
      [&]() -> std::unique_ptr<Service> {
        all.push_back(Make(config));
        return std::move(all.back()->service);
      },
      nullptr, /*rounds=*/4);
}

TEST_F(ServiceTest, StartsAndStopsOverAndOverAndLosesNothing) {
  for (int round = 1; round <= 8; ++round) {
    const auto running = Make(Config());
    ASSERT_TRUE(running->service->Start().ok());
    Enqueue("k", round);
    if (round % 2 == 0) {
      EXPECT_TRUE(running->service->WaitUntilDrained().ok());
    }
    running->service->Stop();
  }
  const auto last = Make(Config());
  ASSERT_TRUE(last->service->Start().ok());
  EXPECT_TRUE(last->service->WaitUntilDrained().ok());
  ASSERT_TRUE(sink_.Await([&] { return FirstDeliveries()["k"].size() == 8; }));
  EXPECT_THAT(FirstDeliveries()["k"], ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(ServiceTest, TablesHaveSettingsOfTheirOwn) {
  db_.Run("SELECT lockstep.create_outbox('other.outbox')");
  PublisherConfig config = Config({kTable, "other.outbox"});
  config.tables[0].on_dead = OnDead::kSkip;
  config.tables[0].retry.max_attempts = 1;
  config.tables[0].last_error_max_bytes = 30;
  config.tables[1].single_active = false;
  config.tables[1].shards = 4;
  config.tables[1].retry.max_attempts = 2;
  InProcessBus bus;
  bus.Subscribe("shop.events", [](const Event& event) {
    const bool bad = event.row.aggregate_id == "k" && event.row.version == 1;
    return bad ? absl::InternalError(std::string(100, 'x')) : absl::OkStatus();
  });
  const auto running = Make(config, &bus);
  ASSERT_TRUE(running->service->Start().ok());
  for (const char* table : {kTable, "other.outbox"}) {
    db_.Query(
        "SELECT lockstep.enqueue($1::regclass, 'shop.events', 'item', 'k', 'T', v, 'p') FROM "
        "generate_series(1, 2) v",
        postgres::Params(table));
  }
  int64_t others = 0;  // they pass, so that it is the row's fault
  const auto pass_others_until = [&](const std::string& table, const std::string& where) {
    return testing::Eventually([&] {
      if (db_.QueryInt("SELECT count(*) FROM " + table + " WHERE " + where) > 0) return true;
      db_.Query("SELECT lockstep.enqueue($1::regclass, 'shop.events', 'item', 'o', 'T', $2, 'p')",
                postgres::Params(table, ++others));
      return false;
    });
  };
  ASSERT_TRUE(pass_others_until(kTable, "published_at IS NOT NULL AND aggregate_id = 'k'"))
      << "it skips";
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1 AND octet_length(last_error) <= 30"), 1);
  ASSERT_TRUE(pass_others_until("other.outbox", "dead_at IS NOT NULL"));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox WHERE attempts = 2 AND "
                         "octet_length(last_error) > 100"),
            1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox WHERE published_at IS NOT NULL "
                         "AND aggregate_id = 'k'"),
            0)
      << "it holds the key";
  EXPECT_EQ(db_.QueryInt("SELECT shards FROM lockstep.outboxes WHERE outbox = "
                         "'other.outbox'::regclass"),
            4);
}

// The relay and the transport both keep to it.
TEST_F(ServiceTest, ANewLimitOfRequestsIsFollowed) {
  receiver_->Stop();  // its calls would be counted too
  PublisherConfig config = Config();
  config.tables[0].max_requests = 1;
  constexpr int kTopics = 6;  // a request is of one topic
  for (int i = 0; i < kTopics; ++i) {
    const std::string topic = fmt::format("t{}", i);
    config.topics[topic] = "shop.events";
    Enqueue({.key = topic, .topic = topic});
  }
  const auto running = Make(config);
  server_.faults().Freeze();
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitWaiting(1));
  config.tables[0].max_requests = kTopics;
  running->service->Reload(config);
  EXPECT_TRUE(AwaitWaiting(kTopics));
  server_.faults().Thaw();
  EXPECT_TRUE(AwaitRows("published_at IS NOT NULL", kTopics));
}

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

TEST_F(ServiceTest, SwitchedOffKeepsTheDataAndDispatchesNothing) {
  PublisherConfig config = Config();
  config.relay_enabled = false;
  config.cleaner.interval = Millis(10);
  Enqueue("k", 1);
  EnqueueMany("old", 2);
  db_.Run(
      "UPDATE shop.outbox SET published_at = now() - interval '8 days' WHERE aggregate_id = 'old'");
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  EXPECT_TRUE(running->service->NotReady().empty());
  ASSERT_TRUE(testing::Eventually([&] { return Count("aggregate_id = 'old'") == 0; }))
      << "it still cleans";
  EXPECT_EQ(Count("published_at IS NULL AND lock_token IS NULL"), 1);
  EXPECT_EQ(sink_.count(), 0u);
  EXPECT_THAT(RenderMetrics(running->metrics),
              HasSubstr("outbox_shards_held{table=\"shop.outbox\"} 0\n"));
}

// A writer that may enqueue must not reach every topic that the publisher's account reaches.
TEST_F(ServiceTest, ARowOfATopicThatIsNotInTheTableIsDeadAndSaysWhy) {
  Enqueue({.key = "lured", .topic = "payroll.events"});
  pubsub::Topic topic;
  topic.name = "projects/p/topics/payroll.events";
  ASSERT_TRUE(transport_->admin().CreateTopic(topic).ok());
  db_.Run(
      "SELECT lockstep.enqueue('shop.outbox', 't' || i, 'item', 'k' || i, 'T', 1, 'p') "
      "FROM generate_series(1, 300) i");
  db_.Run(
      "SELECT lockstep.enqueue('shop.outbox', 'same', 'item', 's' || i, 'T', 1, 'p') "
      "FROM generate_series(1, 20) i");
  Enqueue("good", 1);
  PublisherConfig config = Config();
  ::testing::internal::CaptureStderr();
  {
    const auto running = Make(config);
    ASSERT_TRUE(running->service->Start().ok());
    EXPECT_TRUE(AwaitRows("dead_at IS NOT NULL", 321));
    EXPECT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
    EXPECT_LE(running->service->Tables()[0].relay.topics.size(), TopicLabels::kMostOthers + 2);
    EXPECT_LT(RenderMetrics(running->metrics).size(), 1'000'000u);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(std::ranges::count(log, '\n'), 200);
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1 AND error_code = 'TOPIC.NOT_CONFIGURED' "
                  "AND last_error LIKE '%table `topics`%'"),
            321);
  // Who wants it so.
  config.topics.clear();
  config.any_topic = true;
  db_.Run("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')");
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  EXPECT_TRUE(AwaitRows("published_at IS NOT NULL", 2));
}

TEST_F(ServiceTest, ARowWhoseTopicBreaksTheStyleIsDeadAndSaysWhy) {
  PublisherConfig config = Config();
  config.topic_style = TopicStyle::kVersioned;
  config.topics = {{"shop.item.changed.v1", "shop.item.changed.v1"}};
  pubsub::Topic topic;
  topic.name = "projects/p/topics/shop.item.changed.v1";
  ASSERT_TRUE(transport_->admin().CreateTopic(topic).ok());
  for (int i = 0; i < 5; ++i) {
    Enqueue({.key = fmt::format("good{}", i), .topic = "shop.item.changed.v1"});
    Enqueue({.key = fmt::format("bad{}", i), .topic = "shop.events"});
  }
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("dead_at IS NOT NULL", 5));
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 5));
  EXPECT_EQ(Count("dead_at IS NOT NULL AND topic = 'shop.events' AND attempts = 1 AND error_code = "
                  "'SCHEMA.VALIDATION_FAILED' AND last_error LIKE '%topic_style: versioned%'"),
            5);
  EXPECT_EQ(sink_.count(), 0u);
}

TEST_F(ServiceTest, OneBadRowAmongAThousandIsFoundOnATopicWithASchema) {
  CreateSchemaTopic(strict_sink_);
  // \x0a03616263 is {name: "abc"}; \x0a ends in the middle of a field.
  db_.Run(
      "SELECT count(lockstep.enqueue('shop.outbox', 'shop.strict', 'item', 'k' || i, 'Item', 1, "
      "CASE WHEN i = 617 THEN '\\x0a'::bytea ELSE '\\x0a03616263' END)) FROM "
      "generate_series(1, 1000) i");
  PublisherConfig config = Config();
  config.topics["shop.strict"] = "shop.strict";
  config.tables[0].batch_size = 1000;
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 999));
  ASSERT_TRUE(AwaitRows("dead_at IS NOT NULL", 1));
  EXPECT_EQ(Count("dead_at IS NOT NULL AND aggregate_id = 'k617' AND attempts = 1 AND error_code = "
                  "'SCHEMA.VALIDATION_FAILED'"),
            1);
  EXPECT_EQ(Count("attempts > 0"), 1) << "nobody else is blamed";
  ASSERT_TRUE(strict_sink_.AwaitCount(999));
  EXPECT_EQ(strict_sink_.count(), 999u) << "each once";
  strict_->Stop();
}

// Whether it stops for a pooler: it says so and takes no shard.
bool RefusesPooler(const PublisherService& service) {
  const auto reasons = service.NotReady();
  return std::any_of(reasons.begin(), reasons.end(), [](const std::string& reason) {
    return reason.find("pooler") != std::string::npos;
  });
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

TEST_F(ServiceTest, NobodyWhoListensIsNoSubscribersAndSpendsNoAttempt) {
  InProcessBus bus;
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("error_code = 'EVENTBUS_NO_SUBSCRIBERS' AND attempts = 0", 1));
  std::atomic<int> heard = 0;
  bus.Subscribe("shop.events", [&](const Event&) { return ++heard, absl::OkStatus(); });
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND last_error IS NULL", 1));
  EXPECT_EQ(heard, 1);
}

TEST_F(ServiceTest, AHandlerHearsEverythingAboutItsEvent) {
  InProcessBus bus;
  std::promise<OutboxRow> heard;
  std::string table;
  bus.Subscribe("shop.events", [&](const Event& event) {
    table = event.table;
    heard.set_value(event.row);
    return absl::OkStatus();
  });
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  const int64_t sequence = db_.QueryInt(
      "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k', 'T', 1, 'p', event_id => "
      "'00000000-0000-4000-8000-000000000001', tenant_id => 'acme', traceparent => '00-a-b-01', "
      "tracestate => 'x=1')");
  const OutboxRow row = heard.get_future().get();
  EXPECT_EQ(table, kTable);
  EXPECT_EQ(row.sequence, sequence);
  EXPECT_EQ(row.event_id.value(), "00000000-0000-4000-8000-000000000001");
  EXPECT_EQ(row.tenant_id, "acme");
  EXPECT_EQ(row.topic, "shop.events");
  EXPECT_EQ(row.attempts, 0);
  EXPECT_EQ(row.traceparent, "00-a-b-01");
  EXPECT_EQ(row.tracestate, "x=1");
  running->service->Stop();
}

TEST_F(ServiceTest, AnEventThatTheBusHasAlreadyIsAsGoodAsPublished) {
  InProcessBus bus;
  bus.Subscribe("shop.events", [](const Event&) { return absl::AlreadyExistsError("seen"); });
  const log::Level level = log::CurrentLevel();
  log::SetLevel(log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  EnqueueMany("k", 3);
  const bool published = AwaitRows("published_at IS NOT NULL AND attempts = 0", 3);
  running->service->Stop();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  log::SetLevel(level);
  EXPECT_TRUE(published);
  EXPECT_THAT(lines, HasSubstr("code=outbox_flush_dedup_hit"));
  EXPECT_THAT(RenderMetrics(running->metrics),
              HasSubstr("outbox_dispatch_total{result=\"success\",table=\"shop.outbox\",topic="
                        "\"shop.events\"} 3"));
}

TEST_F(ServiceTest, GaugesAndReplaysAreCountedWithoutACleaner) {
  PublisherConfig config = Config();
  config.cleaner.enabled = false;
  config.cleaner.interval = Millis(3'600'000);
  config.metrics.backlog_interval = Millis(20);
  InProcessBus bus;
  bus.Subscribe("shop.events", [](const Event& event) {
    const bool bad = event.row.aggregate_id == "k" && event.row.attempts == 0;
    return bad ? absl::InternalError("no") : absl::OkStatus();
  });
  config.tables[0].retry.max_attempts = 1;
  const auto running = Make(config, &bus);
  const auto shows = [&](const std::string& sample) {
    return testing::Eventually(
        [&] { return RenderMetrics(running->metrics).find(sample + "\n") != std::string::npos; });
  };
  ASSERT_TRUE(running->service->Start().ok());
  EnqueueMany("k", 3);  // the first dies as soon as another passes, the others are held
  int64_t others = 0;
  ASSERT_TRUE(testing::Eventually([&] {
    if (Count("dead_at IS NOT NULL") == 1) return true;
    Enqueue("other", ++others);
    return false;
  }));
  EXPECT_TRUE(shows(R"(outbox_pending{table="shop.outbox"} 2)"));
  EXPECT_TRUE(shows(R"(outbox_dead_total{table="shop.outbox",topic="shop.events"} 1)"));
  db_.Run("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')");
  EXPECT_TRUE(shows(R"(replay_total{kind="outbox"} 1)"));
}

}  // namespace
}  // namespace lockstep::publisher
