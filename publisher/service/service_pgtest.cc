// A whole publisher in this process, on a real Postgres and the emulator.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "publisher/dispatch/in_process_bus.h"
#include "publisher/testing/service_test.h"
#include "tests/support/eventually.h"
#include "tests/support/service_stress.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

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
      if (db_.QueryInt("SELECT count(*) FROM " + table + "_status WHERE " + where) > 0) return true;
      db_.Query("SELECT lockstep.enqueue($1::regclass, 'shop.events', 'item', 'o', 'T', $2, 'p')",
                postgres::Params(table, ++others));
      return false;
    });
  };
  ASSERT_TRUE(pass_others_until(kTable, "published_at IS NOT NULL AND aggregate_id = 'k'"))
      << "it skips";
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1 AND octet_length(last_error) <= 30"), 1);
  ASSERT_TRUE(pass_others_until("other.outbox", "dead_at IS NOT NULL"));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox_status WHERE attempts = 2 AND "
                         "octet_length(last_error) > 100"),
            1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM other.outbox_status WHERE published_at IS NOT NULL "
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

TEST_F(ServiceTest, SwitchedOffKeepsTheDataAndDispatchesNothing) {
  PublisherConfig config = Config();
  config.relay_enabled = false;
  config.cleaner.interval = Millis(10);
  Enqueue("k", 1);
  EnqueueMany("old", 2);
  db_.Run(
      "UPDATE shop.outbox_status SET published_at = now() - interval '8 days' WHERE aggregate_id = "
      "'old'");
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
  EXPECT_TRUE(shows(R"(tx_replay_total{kind="outbox"} 1)"));
}

}  // namespace
}  // namespace lockstep::publisher
