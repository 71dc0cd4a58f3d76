// docs/metrics.md: the names and labels that dashboards rely on.
#include "publisher/observe/relay_metrics.h"

#include <gmock/gmock.h>

#include "platform/metrics.h"

namespace lockstep::publisher {
namespace {

using Kind = RowEvent::Kind;
using ::testing::HasSubstr;
using ::testing::Not;

OutboxRow Row(const std::string& topic) {
  OutboxRow row;
  row.sequence = 4711;
  row.event_id = EventId("00000000-0000-4000-8000-000000000001");
  row.tenant_id = "acme";
  row.topic = topic;
  row.aggregate_id = "the key";
  row.created_at = Clock::System().Now();
  row.first_claim = true;
  return row;
}

TEST(RelayMetrics, SaysWhatHappenedByTableAndTopic) {
  MetricsRegistry registry;
  RelayMetrics metrics(registry, "shop.outbox");
  const OutboxRow row = Row("a");
  OutboxRow again = Row("a");
  again.first_claim = false;
  metrics.OnClaimed({row, again});
  metrics.OnShards({0}, 1);
  metrics.OnRow({Kind::kPublished, row, Millis(5)});
  metrics.OnRow({Kind::kKnown, row, Millis(5)});
  metrics.OnRow({Kind::kFailed, row, Millis(5)});
  metrics.OnRow(
      {.kind = Kind::kRetry, .row = row, .wait = Millis(1000), .code = "UNKNOWN.INTERNAL"});
  metrics.OnRow({Kind::kFailed, row, Millis(5)});
  metrics.OnRow({.kind = Kind::kDead, .row = row, .code = "SCHEMA.VALIDATION_FAILED"});
  metrics.OnRow({.kind = Kind::kLostLease, .row = row, .state = "{}"});
  metrics.OnRow(
      {.kind = Kind::kUnblamed, .row = row, .wait = Millis(1000), .code = "UNKNOWN.INTERNAL"});
  metrics.OnRow(
      {.kind = Kind::kOutage, .row = row, .wait = Millis(1000), .code = "PROVIDER.UNAVAILABLE"});
  const std::string text = RenderMetrics(registry);
  const std::string topic = R"(table="shop.outbox",topic="a")";
  for (const std::string& sample : {
           std::string(R"(outbox_shards_held{table="shop.outbox"} 1)"),
           std::string(R"(outbox_relay_leader{table="shop.outbox"} 1)"),
           "outbox_enqueue_total{" + topic + "} 1",
           "outbox_dispatch_total{result=\"success\"," + topic + "} 2",
           "outbox_dispatch_total{result=\"failure\"," + topic + "} 2",
           "outbox_dispatch_latency_seconds_count{result=\"success\"," + topic + "} 2",
           "outbox_dispatch_latency_seconds_count{result=\"failure\"," + topic + "} 2",
           "outbox_enqueue_to_publish_seconds_count{" + topic + "} 2",
           "outbox_dead_total{" + topic + "} 1",
           std::string(R"(outbox_retry_total{code="UNKNOWN.INTERNAL",table="shop.outbox"} 2)"),
           std::string(R"(outbox_retry_total{code="PROVIDER.UNAVAILABLE",table="shop.outbox"} 1)"),
           std::string(R"(outbox_retry_total{code="TX.TIMEOUT",table="shop.outbox"} 0)"),
           std::string(R"(outbox_retry_delay_seconds_count{table="shop.outbox"} 3)"),
           std::string(R"(outbox_lost_leases_total{table="shop.outbox"} 1)"),
       }) {
    EXPECT_THAT(text, HasSubstr(sample));
  }
  for (const char* secret : {"acme", "4711", "the key", "00000000-0000"}) {
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  }
}

// A writer names topics, and a label stays until the process ends.
TEST(RelayMetrics, TopicsBeyondAHundredShareALabelButThoseOfTheConfiguration) {
  MetricsRegistry registry;
  const Topics configured = {{"mine", "shop.events"}};
  RelayMetrics metrics(registry, "shop.outbox", TopicLabels(configured));
  for (int i = 0; i < 1'000; ++i) metrics.OnClaimed({Row("t" + std::to_string(i))});
  metrics.OnClaimed({Row("mine")});
  const std::string text = RenderMetrics(registry);
  const std::string enqueued = "outbox_enqueue_total{table=\"shop.outbox\",topic=";
  EXPECT_THAT(text, HasSubstr(enqueued + "\"t99\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("\"t100\"")));
  EXPECT_THAT(text, HasSubstr(enqueued + "\"(other)\"} 900\n"));
  EXPECT_THAT(text, HasSubstr(enqueued + "\"mine\"} 1\n"));
}

TEST(RelayMetrics, TheLeaderIsWhoHoldsAShard) {
  MetricsRegistry registry;
  RelayMetrics metrics(registry, "shop.outbox");
  metrics.OnShards({3}, 16);
  metrics.OnShards({}, 16);
  EXPECT_THAT(RenderMetrics(registry), HasSubstr(R"(outbox_relay_leader{table="shop.outbox"} 0)"));
}

}  // namespace
}  // namespace lockstep::publisher
