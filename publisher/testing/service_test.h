#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "platform/metrics.h"
#include "publisher/service/publisher.h"
#include "publisher/testing/publishers.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {

inline constexpr char kSchemaTopic[] = "projects/p/topics/shop.strict";

// A whole publisher in this process, on a real Postgres and the emulator.
class ServiceTest : public PublishersTest {
 protected:
  PublisherConfig Config(const std::vector<std::string>& tables = {kTable}) {
    PublisherConfig config;
    config.database = db_.url();
    config.instance = "a";
    config.ownership.ping_interval = Millis(50);
    config.topics = {{"shop.events", "shop.events"}};
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
    return testing::Eventually([&] { return server_.faults().Waiting() == calls; });
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
      EXPECT_THAT(delivery.message.attributes, ::testing::SizeIs(1));
      positions.push_back(found->second);
    }
    return positions;
  }

  testing::CollectingSink strict_sink_;
  std::unique_ptr<pubsub::Receiver> strict_;
};

}  // namespace lockstep::publisher
