// A whole publisher in this process, on a real Postgres and the emulator.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "platform/log.h"
#include "platform/metrics.h"
#include "platform/status.h"
#include "publisher/in_process_bus.h"
#include "publisher/publisher.h"
#include "publisher/testing/publishers.h"
#include "publisher/testing/transaction_pooler.h"
#include "tests/support/fake_bus_admin.h"
#include "tests/support/service_stress.h"

namespace lockstep::publisher {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kSchemaTopic[] = "projects/p/topics/shop.strict";

class ServiceTest : public PublishersTest {
 protected:
  PublisherConfig Config(std::vector<std::string> tables = {kTable}) {
    PublisherConfig config;
    config.database = db_.url();
    config.instance = "a";
    config.ownership.ping_interval = Millis(50);
    for (const std::string& name : tables) {
      RelayOptions table;
      table.table = name;
      table.poll_interval = Millis(200);
      table.retry.base = table.retry.cap = Millis(20);
      table.retry.jitter_amount = 0;
      config.tables.push_back(table);
    }
    return config;
  }

  // On Pub/Sub, unless `bus` is given.
  struct Running {
    MetricsRegistry metrics;
    std::unique_ptr<Dispatcher> dispatcher;
    std::unique_ptr<pubsub::Publisher> heartbeats;
    std::unique_ptr<PublisherService> service;
  };
  std::unique_ptr<Running> Make(const PublisherConfig& config, Dispatcher* bus = nullptr) {
    auto running = std::make_unique<Running>();
    running->dispatcher = MakePubsubDispatcher(*transport_, "p", config);
    running->service = std::make_unique<PublisherService>(
        config, bus == nullptr ? *running->dispatcher : *bus, running->metrics);
    running->heartbeats = transport_->NewPublisher({});
    running->service->SetHeartbeat(
        *running->heartbeats, transport_->admin(),
        [](const std::string& topic) { return "projects/p/topics/" + topic; });
    return running;
  }

  // Until so many calls wait at the frozen emulator.
  bool AwaitWaiting(size_t calls) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (server_.faults().Waiting() != calls) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // A topic whose messages are protobuf, and what it got.
  void CreateSchemaTopic(testing::CollectingSink& sink) {
    pubsub::Schema schema;
    schema.name = "projects/p/schemas/item";
    schema.definition = "syntax = \"proto3\"; message Item { string name = 1; }";
    ASSERT_TRUE(transport_->admin().CreateSchema(schema).ok());
    pubsub::Topic topic;
    topic.name = kSchemaTopic;
    topic.schema = {schema.name, pubsub::SchemaSettings::Encoding::kBinary};
    ASSERT_TRUE(transport_->admin().CreateTopic(topic).ok());
    pubsub::Subscription subscription;
    subscription.name = "projects/p/subscriptions/shop.strict.test";
    subscription.topic = kSchemaTopic;
    ASSERT_TRUE(transport_->admin().CreateSubscription(subscription).ok());
    pubsub::ReceiverOptions options;
    options.subscription = subscription.name;
    options.max_outstanding_messages = 100'000;
    strict_ = transport_->NewReceiver(options, sink);
    ASSERT_TRUE(strict_->Start().ok());
  }

  static std::vector<std::string> Heartbeats(const testing::CollectingSink& sink) {
    std::vector<std::string> positions;
    for (const auto& delivery : sink.deliveries()) {
      const auto found = delivery.message.attributes.find("lockstep_heartbeat");
      if (found == delivery.message.attributes.end()) continue;
      EXPECT_EQ(delivery.message.ordering_key, "");
      EXPECT_EQ(delivery.message.data, "");
      EXPECT_THAT(delivery.message.attributes, SizeIs(1));
      positions.push_back(found->second);
    }
    return positions;
  }

  testing::CollectingSink strict_sink_;
  std::unique_ptr<pubsub::Receiver> strict_;
};

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
    return event.row.version == 1 ? absl::InternalError(std::string(100, 'x')) : absl::OkStatus();
  });
  const auto running = Make(config, &bus);
  ASSERT_TRUE(running->service->Start().ok());
  for (const char* table : {kTable, "other.outbox"}) {
    db_.Query(
        "SELECT lockstep.enqueue($1::regclass, 'shop.events', 'item', 'k', 'T', v, 'p') FROM "
        "generate_series(1, 2) v",
        postgres::Params().Add(table));
  }
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND version = 2", 1)) << "it skips";
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1 AND octet_length(last_error) <= 30"), 1);
  while (db_.QueryInt("SELECT count(*) FROM other.outbox WHERE dead_at IS NOT NULL") == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox WHERE attempts = 2 AND "
                         "octet_length(last_error) > 100"),
            1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox WHERE published_at IS NOT NULL"), 0)
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
  while (Count("true") > 0) std::this_thread::yield();  // published and cleaned
  const bool beat = sink_.Await([&] { return !Heartbeats(sink_).empty(); });
  running->service->Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(started.ok()) << started;
  EXPECT_TRUE(beat);
  EXPECT_THAT(log, Not(HasSubstr("level=warn"))) << log;
  EXPECT_EQ(db_.QueryInt("SELECT shards FROM lockstep.outboxes"), 16);
  db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", role));
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
  EXPECT_TRUE(running->service->Reasons().empty());
  while (Count("aggregate_id = 'old'") > 0) std::this_thread::yield();  // it still cleans
  EXPECT_EQ(Count("published_at IS NULL AND lock_token IS NULL"), 1);
  EXPECT_EQ(sink_.count(), 0u);
}

TEST_F(ServiceTest, ARowWhoseTopicBreaksTheStyleIsDeadAndSaysWhy) {
  PublisherConfig config = Config();
  config.topic_style = TopicStyle::kVersioned;
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

TEST_F(ServiceTest, HeartbeatsCarryTheNewestCommittedPosition) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(50);
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  EXPECT_THAT(Heartbeats(sink_), Contains("0"));
  const int64_t sequence = Enqueue("k", 1);
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).back() == fmt::format("{}", sequence); }));
  running->service->Stop();
}

TEST_F(ServiceTest, OnlyTheOwnerOfTheFirstShardSendsHeartbeats) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(30);
  const auto owner = Make(config);
  ASSERT_TRUE(owner->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  ASSERT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  owner->service->Stop();
  const auto holder = db_.Connect();
  ASSERT_TRUE(holder->Execute("SELECT pg_sleep(0.5)").ok());  // the last beat may be on its way
  const size_t before = Heartbeats(sink_).size();
  // It holds the locks of an owner: the one that starts is a standby.
  ASSERT_TRUE(
      holder->Execute("SELECT pg_advisory_lock(lockstep.lock_key('shard', 'shop.outbox', 0))")
          .ok());
  PublisherConfig second = config;
  second.instance = "b";
  const auto standby = Make(second);
  ASSERT_TRUE(standby->service->Start().ok());
  ASSERT_TRUE(holder->Execute("SELECT pg_sleep(0.3)").ok());  // ten beats
  EXPECT_EQ(Heartbeats(sink_).size(), before);
  ASSERT_TRUE(
      holder->Execute("SELECT pg_advisory_unlock(lockstep.lock_key('shard', 'shop.outbox', 0))")
          .ok());
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).size() > before; }));
}

TEST_F(ServiceTest, ATopicWithASchemaGetsNoHeartbeat) {
  CreateSchemaTopic(strict_sink_);
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.strict", "shop.events"};
  config.heartbeat.interval = Millis(20);
  ::testing::internal::CaptureStderr();
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  // Both are sent in one round, the strict one first.
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).size() >= 5; }));
  running->service->Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("heartbeats are refused on a topic with a schema"));
  EXPECT_EQ(log.find("are refused"), log.rfind("are refused")) << "said once";
  EXPECT_EQ(strict_sink_.count(), 0u);
  strict_->Stop();
}

// roles/pubsub.publisher may publish, and look at nothing.
class PublisherRole : public testing::FakeBusAdmin {
 public:
  using FakeBusAdmin::FakeBusAdmin;
  absl::StatusOr<pubsub::Topic> GetTopic(const std::string&) override {
    return absl::PermissionDeniedError("pubsub.topics.get");
  }
};

TEST_F(ServiceTest, HeartbeatsNeedNoRightButToPublish) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(50);
  testing::FakeBus bus;
  PublisherRole role(bus);
  const auto running = Make(config);
  running->service->SetHeartbeat(*running->heartbeats, role, [](const std::string& topic) {
    return "projects/p/topics/" + topic;
  });
  ASSERT_TRUE(running->service->Start().ok());
  EXPECT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  running->service->Stop();
}

// Whether it stops for a pooler: it says so and takes no shard.
bool RefusesPooler(const PublisherService& service) {
  const auto reasons = service.Reasons();
  return std::any_of(reasons.begin(), reasons.end(), [](const std::string& reason) {
    return reason.find("pooler") != std::string::npos;
  });
}

TEST_F(ServiceTest, ATransactionPoolerIsRefused) {
  for (const int sessions : {1, 2, 3}) {
    TransactionPooler pooler(db_.url(), sessions);
    PublisherConfig config = Config();
    config.database = pooler.url();
    const auto running = Make(config);
    const absl::Status started = running->service->Start();
    // By luck the pooler may hand out the same sessions for as long as the start looks.
    if (started.ok() && sessions > 1) {
      while (!RefusesPooler(*running->service)) std::this_thread::yield();
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << sessions << ": " << started;
    EXPECT_THAT(std::string(MessageOf(started)), HasSubstr("transaction pooler"));
  }
}

TEST_F(ServiceTest, APoolInSessionModeServesUntilItPoolsTransactions) {
  TransactionPooler pooler(db_.url(), 20);
  pooler.pools_transactions = false;
  PublisherConfig config = Config();
  config.database = pooler.url();
  const auto running = Make(config);
  const absl::Status started = running->service->Start();
  ASSERT_TRUE(started.ok()) << started;
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  pooler.pools_transactions = true;
  while (!RefusesPooler(*running->service)) std::this_thread::yield();
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
    return event.row.attempts == 0 ? absl::InternalError("no") : absl::OkStatus();
  });
  config.tables[0].retry.max_attempts = 1;
  const auto running = Make(config, &bus);
  const auto shows = [&](const std::string& sample) {
    while (RenderMetrics(running->metrics).find(sample + "\n") == std::string::npos) {
      std::this_thread::yield();
    }
  };
  ASSERT_TRUE(running->service->Start().ok());
  EnqueueMany("k", 3);  // the first dies, the others are held
  shows(R"(outbox_pending{table="shop.outbox"} 2)");
  shows(R"(outbox_dead_total{table="shop.outbox",topic="shop.events"} 1)");
  db_.Run("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')");
  shows(R"(replay_total{kind="outbox"} 1)");
}

}  // namespace
}  // namespace lockstep::publisher
