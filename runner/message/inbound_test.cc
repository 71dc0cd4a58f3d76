#include "runner/message/inbound.h"

#include <gmock/gmock.h>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

Inbound Parse(pubsub::Message message) {
  return Inbound({.message = std::move(message), .message_id = MessageId("1")}, WallTime());
}

TEST(Inbound, ReadsEveryAttribute) {
  TestEvent event{.id = "k/1", .version = 7, .event_id = "ABCDEF00-0000-4000-8000-000000000001"};
  pubsub::Message message = event.Message();
  message.attributes["tenant_id"] = "acme";
  const Inbound item = Parse(message);
  ASSERT_FALSE(item.poison) << item.poison->reason;
  EXPECT_EQ(item.event.event_id.value(), "abcdef00-0000-4000-8000-000000000001");
  EXPECT_EQ(item.event.version, 7);
  EXPECT_EQ(item.event.aggregate.tenant_id, "acme");
  EXPECT_EQ(item.aggregate_key, "item@acme/k/1");
  EXPECT_TRUE(item.ordered());
}

// Of one request to Pub/Sub all messages have the same time: what is saved, logged and shown is the
// same one of them.
TEST(Inbound, TheNewestIsTheOneOfTheOffset) {
  std::vector<Inbound> items(3);
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].publish_time = WallTime(std::chrono::seconds(i == 2 ? 1 : 2));
    items[i].message_id = MessageId(std::to_string(i + 7));
  }
  const std::vector<Inbound*> forward = {&items[0], &items[1], &items[2]};
  const std::vector<Inbound*> backward = {&items[2], &items[1], &items[0]};
  EXPECT_EQ(NewestOf(forward)->message_id.value(), "8");
  EXPECT_EQ(NewestOf(backward)->message_id.value(), "8");
  EXPECT_EQ(NewestOf({}), nullptr);
}

TEST(Inbound, KeepsAggregatesApartThatLookAlike) {
  const auto key = [](std::optional<std::string> tenant, std::string type, std::string id) {
    return envelope::AggregateKey({std::move(tenant), std::move(type), std::move(id)});
  };
  EXPECT_NE(key(std::nullopt, "a/b", "c"), key(std::nullopt, "a", "b/c"));
  EXPECT_NE(key("b", "a", "c"), key(std::nullopt, "a@b", "c"));
  EXPECT_NE(key("", "a", "c"), key(std::nullopt, "a", "c"));
  EXPECT_NE(key(std::nullopt, "a%2F", "c"), key(std::nullopt, "a/", "c"));
}

TEST(Inbound, ReadsWhatMakesASnapshot) {
  using Extra = std::vector<std::pair<std::string, std::string>>;
  const auto with = [](const Extra& extra) {
    pubsub::Message message = TestEvent{}.Message();
    for (const auto& [name, value] : extra) message.attributes[name] = value;
    return Parse(message);
  };
  EXPECT_FALSE(with({}).event.is_snapshot());
  const Inbound plain = with({{"lockstep_kind", "snapshot"}});
  ASSERT_FALSE(plain.poison) << plain.poison->reason;
  EXPECT_TRUE(plain.event.is_snapshot());
  EXPECT_FALSE(plain.event.overwrite);
  const Extra all = {
      {"lockstep_kind", "snapshot"}, {"lockstep_overwrite", "true"}, {"lockstep_absent", "true"}};
  const Inbound ghost = with(all);
  ASSERT_FALSE(ghost.poison) << ghost.poison->reason;
  EXPECT_TRUE(ghost.event.overwrite);
  EXPECT_TRUE(ghost.event.absent);
  for (const Extra& wrong : {Extra{{"lockstep_kind", "event"}}, Extra{{"lockstep_kind", ""}},
                             Extra{{"lockstep_kind", "snapshot"}, {"lockstep_overwrite", "yes"}},
                             Extra{{"lockstep_overwrite", "true"}},
                             Extra{{"lockstep_kind", "snapshot"}, {"lockstep_absent", "true"}},
                             Extra{{"lockstep_absent", "true"}}}) {
    const Inbound item = with(wrong);
    ASSERT_TRUE(item.poison) << wrong.back().first << " " << wrong.back().second;
    EXPECT_EQ(item.poison->code, "EVENT.ATTRIBUTE_INVALID");
    EXPECT_THAT(item.poison->reason, HasSubstr(wrong.back().first));
  }
}

TEST(Inbound, MakesPoisonOfAMissingAttributeAndNamesIt) {
  for (const char* name : {"event_id", "event_type", "aggregate_type", "aggregate_id", "version",
                           "schema_version", "occurred_at", "content_type"}) {
    pubsub::Message message = TestEvent{}.Message();
    message.attributes.erase(name);
    const Inbound item = Parse(message);
    ASSERT_TRUE(item.poison) << name;
    EXPECT_EQ(item.poison->code, "EVENT.ATTRIBUTE_MISSING");
    EXPECT_THAT(item.poison->reason, HasSubstr(name));
  }
}

TEST(Inbound, MakesPoisonOfAMalformedAttribute) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"event_id", "42"},
      {"event_id", "00000000-0000-4000-8000-00000000000g"},
      {"version", "-1"},
      {"version", "0"},
      {"version", "1x"},
      {"version", "99999999999999999999"},
      {"version", "9223372036854775807"},  // there is no next one
      {"schema_version", "one"},
      {"occurred_at", "yesterday"},
      {"content_type", "text/plain"},
      {"aggregate_id", ""},
      {"tenant_id", std::string(1900, 't') + std::string(200, 'u')},
      {"anything", std::string("nul\0nul", 7)}};
  for (const auto& [name, value] : bad) {
    pubsub::Message message = TestEvent{}.Message();
    message.attributes[name] = value;
    const Inbound item = Parse(message);
    ASSERT_TRUE(item.poison) << name << " = " << value;
    EXPECT_EQ(item.poison->code, "EVENT.ATTRIBUTE_INVALID");
  }
}

TEST(Inbound, LosesTheNulCharactersThatPostgresCannotKeep) {
  pubsub::Message message = TestEvent{}.Message();
  message.ordering_key = std::string("k\0k", 3);
  message.attributes[std::string("n\0n", 3)] = "v";
  message.attributes["v"] = std::string("\0", 1);
  const Inbound item = Parse(message);
  EXPECT_EQ(item.ordering_key, "k?k");
  for (const auto& [name, value] : item.event.attributes) {
    EXPECT_EQ(name.find('\0'), std::string::npos);
    EXPECT_EQ(value.find('\0'), std::string::npos);
  }
  // As it is kept it looks well, and is still refused when it is read again.
  message.ordering_key = item.ordering_key;
  message.attributes = item.event.attributes;
  const Inbound again = Parse(message);
  ASSERT_TRUE(again.poison);
  EXPECT_EQ(again.poison->code, "EVENT.ATTRIBUTE_INVALID");
}

TEST(Inbound, FillsInWhatCanBeReadOfAPoisonedMessage) {
  pubsub::Message message = TestEvent{.id = "k9", .version = 3}.Message();
  message.attributes.erase("occurred_at");
  const Inbound item = Parse(message);
  EXPECT_TRUE(item.ordered());
  EXPECT_EQ(item.aggregate_key, "item/k9");
  EXPECT_EQ(item.event.version, 3);
}

}  // namespace
}  // namespace lockstep::runner
