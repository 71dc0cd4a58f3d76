#include "publisher/dispatch/wire.h"

#include <gmock/gmock.h>

#include "publisher/dispatch/pubsub_dispatcher.h"

namespace lockstep::publisher {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

OutboxRow Row() {
  OutboxRow row;
  row.sequence = 7;
  row.event_id = EventId("00000000-0000-4000-8000-000000000001");
  row.topic = "catalog.video.changed.v1";
  row.aggregate_type = "video";
  row.aggregate_id = "v-1";
  row.event_type = "video.events.VideoCreated";
  row.version = 3;
  row.schema_version = 2;
  row.payload = std::string("\0\xff", 2);
  row.content_type = "application/protobuf";
  row.attributes = "{}";
  row.occurred_at = "2026-01-02T03:04:05.678000Z";
  return row;
}

TEST(Wire, HasTheContractsAttributesAndNoMore) {
  const auto message = ToMessage(Row());
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->ordering_key, "v-1");
  EXPECT_EQ(message->data, std::string("\0\xff", 2));
  EXPECT_THAT(
      message->attributes,
      UnorderedElementsAre(Pair("aggregate_id", "v-1"), Pair("aggregate_type", "video"),
                           Pair("content_type", "application/protobuf"),
                           Pair("event_id", "00000000-0000-4000-8000-000000000001"),
                           Pair("event_type", "video.events.VideoCreated"),
                           Pair("occurred_at", "2026-01-02T03:04:05.678000Z"),
                           Pair("schema_version", "2"), Pair("sequence", "7"),
                           Pair("topic", "catalog.video.changed.v1"), Pair("version", "3")));
}

TEST(Wire, AddsWhatIsSetAndTheRowsOwnWhichCanNotOverride) {
  OutboxRow row = Row();
  row.tenant_id = "t";
  row.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  row.tracestate = "a=1 ,  b=2";
  row.attributes = R"({"region": "eu", "version": "99"})";
  const auto message = ToMessage(row);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->attributes.at("tenant_id"), "t");
  EXPECT_EQ(message->attributes.at("traceparent"), *row.traceparent);
  EXPECT_EQ(message->attributes.at("tracestate"), *row.tracestate);
  EXPECT_EQ(message->attributes.at("region"), "eu");
  EXPECT_EQ(message->attributes.at("version"), "3");
}

TEST(Wire, RefusesWhatPubsubWouldRefuse) {
  OutboxRow row = Row();
  row.attributes = R"({"a": 1})";
  EXPECT_EQ(ToMessage(row).status().code(), absl::StatusCode::kInvalidArgument);
  row.attributes = "[";
  EXPECT_EQ(ToMessage(row).status().code(), absl::StatusCode::kInvalidArgument);
  row = Row();
  row.aggregate_id = std::string(1025, 'k');
  EXPECT_EQ(ToMessage(row).status().code(), absl::StatusCode::kInvalidArgument);
  row = Row();
  row.payload = std::string(10'000'001, 'x');
  EXPECT_EQ(ToMessage(row).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Wire, AHeartbeatHasNoOrderingKey) {
  const auto message = HeartbeatMessage("42");
  EXPECT_TRUE(message.ordering_key.empty());
  EXPECT_THAT(message.attributes, UnorderedElementsAre(Pair("lockstep_heartbeat", "42")));
}

TEST(MapTopics, KnowsWhereALogicalTopicGoes) {
  const auto topics =
      MapTopics("p", {{"a.b.c.v1", "a.events"}, {"d", "projects/q/topics/e"}}, false);
  EXPECT_EQ(topics("a.b.c.v1"), "projects/p/topics/a.events");
  EXPECT_EQ(topics("d"), "projects/q/topics/e");
  EXPECT_EQ(topics("other"), "");
  EXPECT_EQ(MapTopics("p", {}, true)("other"), "projects/p/topics/other");
}

}  // namespace
}  // namespace lockstep::publisher
