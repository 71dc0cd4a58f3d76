#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using pubsub::Subscription;
using pubsub::Topic;
using testing::CollectingSink;

TEST_P(Bus, TopicsAreMadeFoundListedAndDeleted) {
  Topic topic;
  topic.name = TopicNamed("topic");
  topic.labels = {{"team", "video"}};
  ASSERT_TRUE(admin().CreateTopic(topic).ok());
  EXPECT_EQ(admin().CreateTopic(topic).status().code(), absl::StatusCode::kAlreadyExists);
  const auto got = admin().GetTopic(topic.name);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->labels, topic.labels);
  const auto listed = admin().ListTopics("conformance");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_TRUE(std::any_of(listed->begin(), listed->end(),
                          [&](const Topic& t) { return t.name == topic.name; }));
  EXPECT_TRUE(admin().DeleteTopic(topic.name).ok());
  EXPECT_EQ(admin().GetTopic(topic.name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(admin().DeleteTopic(topic.name).code(), absl::StatusCode::kNotFound);
}

TEST_P(Bus, AnUpdateOfATopicChangesWhatItsMaskNames) {
  NEEDS(topic_label_updates);
  Topic topic;
  topic.name = MakeTopic();
  topic.labels = {{"team", "video"}};
  topic.retention = std::chrono::hours(24);
  const auto updated = admin().UpdateTopic(topic, {"labels"});
  ASSERT_TRUE(updated.ok()) << updated.status();
  const auto got = admin().GetTopic(topic.name);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->labels, topic.labels);
  EXPECT_FALSE(got->retention.has_value());
  EXPECT_FALSE(admin().UpdateTopic(topic, {"no_such_field"}).ok());
}

TEST_P(Bus, RepeatsAdministrativeCallsThatDoNoHarmTwiceAndNoOthers) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  const absl::Status away = absl::UnavailableError("for a moment");
  server().faults()->RefuseNext("GetTopic", away, 2);
  EXPECT_TRUE(admin().GetTopic(topic).ok());
  server().faults()->RefuseNext("Seek", away, 2);
  EXPECT_TRUE(admin().SeekToTime(MakeSubscription(), std::chrono::system_clock::now()).ok());
  server().faults()->RefuseNext("CreateTopic", away);
  Topic another;
  another.name = TopicNamed("another");
  EXPECT_EQ(admin().CreateTopic(another).status().code(), absl::StatusCode::kUnavailable);
  server().faults()->RefuseNext("DeleteTopic", away, 2);
  EXPECT_TRUE(admin().DeleteTopic(topic).ok());
}

// Takes as long as the deadline is.
TEST_P(Bus, AnAdministrativeCallEndsThoughTheServerNeverAnswers) {
  NEEDS(faults);
  server().faults()->Freeze();
  EXPECT_EQ(admin().GetTopic(TopicNamed("topic")).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  server().faults()->Thaw();
}

TEST_P(Bus, SubscriptionsKeepTheirSettings) {
  const std::string topic = MakeTopic();
  Subscription settings;
  settings.ack_deadline = Millis(42'000);
  settings.ordering = true;
  settings.retain_acked = true;
  settings.retention = std::chrono::hours(24);
  settings.labels = {{"a", "b"}};
  settings.min_backoff = std::chrono::seconds(3);
  settings.max_backoff = std::chrono::seconds(30);
  const std::string name = MakeSubscription(settings);
  auto got = admin().GetSubscription(name);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->topic, topic);
  EXPECT_EQ(got->ack_deadline, settings.ack_deadline);
  EXPECT_TRUE(got->ordering);
  EXPECT_TRUE(got->retain_acked);
  EXPECT_EQ(got->retention, settings.retention);
  EXPECT_EQ(got->labels, settings.labels);
  EXPECT_EQ(got->min_backoff, settings.min_backoff);
  EXPECT_EQ(got->max_backoff, settings.max_backoff);

  got->ack_deadline = Millis(20'000);
  const auto updated = admin().UpdateSubscription(*got, {"ack_deadline_seconds"});
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(admin().GetSubscription(name)->ack_deadline, Millis(20'000));
  EXPECT_FALSE(admin().UpdateSubscription(*got, {"no_such_field"}).ok());

  EXPECT_TRUE(admin().DeleteSubscription(name).ok());
  EXPECT_EQ(admin().GetSubscription(name).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Bus, ListsManySubscriptionsOverPages) {
  MakeTopic();
  constexpr int kCount = 250;  // more than a page
  for (int i = 0; i < kCount; ++i) MakeSubscription({}, "sub" + std::to_string(i));
  const auto listed = admin().ListSubscriptions("conformance");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(std::count_if(listed->begin(), listed->end(),
                          [&](const Subscription& s) { return s.topic == TopicNamed("topic"); }),
            kCount);
}

TEST_P(Bus, ASubscriptionNeedsItsTopic) {
  Subscription settings;
  settings.name = SubscriptionNamed("sub");
  settings.topic = TopicNamed("nowhere");
  EXPECT_EQ(admin().CreateSubscription(settings).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Bus, FiltersDecideWhatASubscriptionGets) {
  NEEDS(filters);
  const std::string topic = MakeTopic();
  Subscription settings;
  settings.filter = "attributes.kind = \"wanted\"";
  const std::string subscription = MakeSubscription(settings);
  const auto acking = ReceiveAndAck(subscription);
  pubsub::Message wanted = Text("yes");
  wanted.attributes["kind"] = "wanted";
  PublishAll(topic, {Text("no"), wanted, Text("no"), wanted});
  ASSERT_TRUE(acking->sink.AwaitCount(2));
  EXPECT_EQ(acking->sink.data(), (std::vector<std::string>{"yes", "yes"}));
  settings.name = SubscriptionNamed("bad");
  settings.topic = topic;
  settings.filter = "attributes.kind = = 3";
  EXPECT_EQ(admin().CreateSubscription(settings).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(Bus, DeadLettersAMessageAfterItsAttempts) {
  NEEDS(dead_letter);
  const std::string topic = MakeTopic();
  const std::string dead = MakeTopic("dead");
  Subscription graveyard;
  graveyard.topic = dead;
  const auto buried = ReceiveAndAck(MakeSubscription(graveyard, "graveyard"));
  Subscription settings;
  settings.dead_letter_topic = dead;
  settings.max_delivery_attempts = 5;
  const std::string subscription = MakeSubscription(settings);
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, {Text("poison")});
  for (size_t attempt = 1; attempt <= 5; ++attempt) {
    ASSERT_TRUE(sink.AwaitCount(attempt)) << attempt;
    EXPECT_EQ(sink.deliveries()[attempt - 1].delivery_attempt, static_cast<int>(attempt));
    Nack(*receiver, TokensOf(sink, attempt - 1));
  }
  ASSERT_TRUE(buried->sink.AwaitCount(1));
  const pubsub::Message letter = buried->sink.deliveries()[0].message;
  EXPECT_EQ(letter.data, "poison");
  EXPECT_TRUE(letter.attributes.contains("CloudPubSubDeadLetterSourceSubscription"));
  EXPECT_EQ(sink.count(), 5u);
}

TEST_P(Bus, SchemasAreEnforced) {
  NEEDS(schemas);
  pubsub::Schema schema;
  schema.name = SchemaNamed("schema");
  schema.definition = "syntax = \"proto3\"; message Video { string id = 1; int64 length = 2; }";
  const auto made = admin().CreateSchema(schema);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(admin().GetSchema(schema.name)->definition, schema.definition);
  Topic topic;
  topic.name = TopicNamed("topic");
  topic.schema = {schema.name, pubsub::SchemaSettings::Encoding::kJson};
  ASSERT_TRUE(admin().CreateTopic(topic).ok());
  PublishAll(topic.name, {Text(R"({"id": "v1", "length": "7"})")});
  const auto refused = Publish(topic.name, {Text(R"({"nonsense": 1})")});
  EXPECT_EQ(refused[0].status().code(), absl::StatusCode::kInvalidArgument) << refused[0].status();
  schema.definition =
      "syntax = \"proto3\"; message Video { string id = 1; int64 length = 2; string title = 3; }";
  const auto committed = admin().CommitSchema(schema);
  EXPECT_TRUE(committed.ok()) << committed.status();
  PublishAll(topic.name, {Text(R"({"id": "v1", "title": "new"})")});
  EXPECT_TRUE(admin().DeleteSchema(schema.name).ok());
}

TEST_P(Bus, DeliveriesSayWhichSchemaTheyFit) {
  NEEDS(schemas);
  pubsub::Schema schema;
  schema.name = SchemaNamed("schema");
  schema.definition = "syntax = \"proto3\"; message Video { string id = 1; }";
  const auto first = admin().CreateSchema(schema);
  ASSERT_TRUE(first.ok()) << first.status();
  Topic topic;
  topic.name = TopicNamed("topic");
  topic.schema = {schema.name, pubsub::SchemaSettings::Encoding::kJson};
  ASSERT_TRUE(admin().CreateTopic(topic).ok());
  const auto acking = ReceiveAndAck(MakeSubscription());
  pubsub::Message message = Text(R"({"id": "v1"})");
  message.attributes["mine"] = "stays";
  PublishAll(topic.name, {message});
  ASSERT_TRUE(acking->sink.AwaitCount(1));
  auto attributes = acking->sink.deliveries()[0].message.attributes;
  EXPECT_EQ(attributes["mine"], "stays");
  EXPECT_EQ(attributes["googclient_schemaname"], schema.name);
  EXPECT_EQ(attributes["googclient_schemaencoding"], "JSON");
  const std::string revision = attributes["googclient_schemarevisionid"];
  EXPECT_EQ(revision.size(), 8u) << revision;

  schema.definition = "syntax = \"proto3\"; message Video { string id = 1; string title = 2; }";
  ASSERT_TRUE(admin().CommitSchema(schema).ok());
  PublishAll(topic.name, {Text(R"({"id": "v1", "title": "new"})")});
  ASSERT_TRUE(acking->sink.AwaitCount(2));
  attributes = acking->sink.deliveries()[1].message.attributes;
  EXPECT_NE(attributes["googclient_schemarevisionid"], revision);
}

TEST_P(Bus, NamesWhatIsCreatedWithoutAName) {
  Subscription settings;
  settings.topic = MakeTopic();
  const auto subscription = admin().CreateSubscription(settings);
  ASSERT_TRUE(subscription.ok()) << subscription.status();
  EXPECT_TRUE(subscription->name.starts_with("projects/conformance/subscriptions/"))
      << subscription->name;
  const auto another = admin().CreateSubscription(settings);
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_NE(another->name, subscription->name);
  EXPECT_TRUE(admin().GetSubscription(subscription->name).ok());
  NEEDS(assigns_snapshot_names);
  const auto snapshot = admin().CreateSnapshot("", subscription->name, {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_TRUE(snapshot->name.starts_with("projects/conformance/snapshots/")) << snapshot->name;
  EXPECT_TRUE(admin().DeleteSnapshot(snapshot->name).ok());
}

TEST_P(Bus, ADetachedSubscriptionSaysSo) {
  NEEDS(detach);
  MakeTopic();
  const std::string subscription = MakeSubscription();
  ASSERT_TRUE(admin().DetachSubscription(subscription).ok());
  EXPECT_TRUE(admin().GetSubscription(subscription)->detached);
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty(); }));
  EXPECT_EQ(sink.states().front().code(), absl::StatusCode::kFailedPrecondition)
      << sink.states().front();
}

TEST_P(Bus, RefusesMalformedNames) {
  Topic topic;
  topic.name = "projects/conformance/topics/!";
  EXPECT_EQ(admin().CreateTopic(topic).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::conformance
