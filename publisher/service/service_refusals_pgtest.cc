// Rows that a publisher or the bus refuses, and who is to blame.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "publisher/observe/relay_status.h"
#include "publisher/testing/service_test.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

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
  ASSERT_TRUE(AwaitRows("attempts = 1", 1));
  db_.Run(
      "SELECT lockstep.enqueue('shop.outbox', 'shop.strict', 'item', 'k', 'Item', 1, "
      "'\\x0a03616263')");
  ASSERT_TRUE(AwaitRows("dead_at IS NOT NULL", 1));
  EXPECT_EQ(Count("dead_at IS NOT NULL AND aggregate_id = 'k617' AND attempts = 2 AND error_code = "
                  "'SCHEMA.VALIDATION_FAILED'"),
            1);
  EXPECT_EQ(Count("attempts > 0"), 1) << "nobody else is blamed";
  ASSERT_TRUE(strict_sink_.AwaitCount(1000));
  EXPECT_EQ(strict_sink_.count(), 1000u) << "each once";
  strict_->Stop();
}

// A schema that nothing fits any more refuses rows in the words of a poison row.
TEST_F(ServiceTest, ASchemaThatRefusesEverythingKillsNothingAndIsOnThePage) {
  CreateSchemaTopic(strict_sink_);
  const auto enqueue = [&](const std::string& key, const char* payload) {
    return db_.QueryInt(
        "SELECT lockstep.enqueue('shop.outbox', 'shop.strict', 'item', $1, 'Item', 1, $2::bytea)",
        postgres::Params(key, payload));
  };
  const std::string event = Text("event_id", enqueue("a", "\\x0a"));
  PublisherConfig config = Config();
  config.topics["shop.strict"] = "shop.strict";
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  const auto page_says = [&](const std::string& what) {
    return testing::Eventually([&] {
      const auto topics = running->service->Tables()[0].relay.topics;
      const auto found = topics.find("shop.strict");
      return found != topics.end() && found->second.outage.find(what) != std::string::npos;
    });
  };
  EXPECT_TRUE(page_says("event " + event)) << "which one, as long as it is alone";
  enqueue("b", "\\x0a");
  EXPECT_TRUE(page_says("INVALID_ARGUMENT"));
  ASSERT_TRUE(AwaitRows("error_code = 'SCHEMA.VALIDATION_FAILED'", 2));
  EXPECT_EQ(Count("attempts > 0 OR dead_at IS NOT NULL"), 0);
  int others = 0;
  EXPECT_TRUE(testing::Eventually([&] {  // these fit, so it is they who do not
    if (Count("dead_at IS NOT NULL AND attempts = 2") == 2) return true;
    enqueue(fmt::format("c{}", ++others), "\\x0a03616263");
    return false;
  }));
  strict_->Stop();
}

}  // namespace
}  // namespace lockstep::publisher
