#include "tests/support/fake_bus.h"

#include <gtest/gtest.h>

#include "platform/status.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/service_stress.h"

namespace lockstep::testing {
namespace {

constexpr char kTopic[] = "projects/p/topics/t";
constexpr char kSubscription[] = "projects/p/subscriptions/s";

class FakeBusTest : public ::testing::Test {
 protected:
  FakeBusTest() {
    pubsub::Topic topic;
    topic.name = kTopic;
    EXPECT_TRUE(bus_.admin().CreateTopic(topic).ok());
    pubsub::Subscription subscription;
    subscription.name = kSubscription;
    subscription.topic = kTopic;
    subscription.ordering = true;
    subscription.retain_acked = true;
    EXPECT_TRUE(bus_.admin().CreateSubscription(subscription).ok());
    publisher_ = bus_.NewPublisher({});
  }

  void Publish(const std::vector<std::string>& data) {
    std::vector<pubsub::Message> messages;
    for (const std::string& text : data) {
      pubsub::Message message;
      message.data = text;
      message.ordering_key = "k";
      messages.push_back(message);
    }
    publisher_->Publish(kTopic, std::move(messages), [this](const auto& results) {
      std::scoped_lock lock(mu_);
      for (const auto& result : results) codes_.push_back(result.status().code());
    });
  }
  std::vector<absl::StatusCode> codes() {
    std::scoped_lock lock(mu_);
    return codes_;
  }
  std::unique_ptr<pubsub::Receiver> Receive(CollectingSink& sink) {
    pubsub::ReceiverOptions options;
    options.subscription = kSubscription;
    auto receiver = bus_.NewReceiver(options, sink);
    EXPECT_TRUE(receiver->Start().ok());
    return receiver;
  }

  FakeBus bus_;
  std::mutex mu_;
  std::vector<absl::StatusCode> codes_;
  std::unique_ptr<pubsub::Publisher> publisher_;
};

TEST_F(FakeBusTest, CarriesMessagesInOrderAndTakesAcks) {
  CollectingSink sink;
  const auto receiver = Receive(sink);
  Publish({"0", "1", "2"});
  ASSERT_TRUE(sink.AwaitCount(3));
  EXPECT_EQ(sink.data(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(bus_.Outstanding(kSubscription), 3);
  receiver->Acknowledge(sink.tokens(), [](const auto&) {});
  EXPECT_TRUE(bus_.Await([&] { return bus_.Backlog(kSubscription) == 0; }));
}

TEST_F(FakeBusTest, BringsBackTheKeyAfterARelease) {
  CollectingSink sink;
  const auto receiver = Receive(sink);
  Publish({"0", "1", "2"});
  ASSERT_TRUE(sink.AwaitCount(3));
  receiver->Release({sink.tokens()[1]}, [](const auto&) {});
  ASSERT_TRUE(sink.AwaitCount(5));
  EXPECT_EQ(sink.data(), (std::vector<std::string>{"0", "1", "2", "1", "2"}));
}

TEST_F(FakeBusTest, FailsByScriptAndAbortsTheSuccessors) {
  bus_.OnPublish([](const std::string&, const pubsub::Message& message) {
    return message.data == "bad" ? absl::InvalidArgumentError("no") : absl::OkStatus();
  });
  Publish({"bad", "same call"});
  ASSERT_TRUE(bus_.Await([&] { return codes().size() == 2; }));
  using Code = absl::StatusCode;
  EXPECT_EQ(codes(), (std::vector{Code::kInvalidArgument, Code::kAborted}));
  Publish({"afterwards"});
  ASSERT_TRUE(bus_.Await([&] { return codes().size() == 3; }));
  EXPECT_EQ(codes().back(), Code::kOk);
}

TEST_F(FakeBusTest, LosesLeasesAndDeliversAgain) {
  CollectingSink sink;
  const auto receiver = Receive(sink);
  Publish({"0"});
  ASSERT_TRUE(sink.AwaitCount(1));
  bus_.LoseLeases(kSubscription);
  ASSERT_TRUE(sink.AwaitCount(2));
  EXPECT_EQ(sink.lost().size(), 1u);
}

TEST_F(FakeBusTest, SeeksToATimeAndToASnapshot) {
  CollectingSink sink;
  const auto receiver = Receive(sink);
  Publish({"0"});
  ASSERT_TRUE(sink.AwaitCount(1));
  ASSERT_TRUE(bus_.admin().CreateSnapshot("projects/p/snapshots/x", kSubscription, {}).ok());
  receiver->Acknowledge(sink.tokens(), [](const auto&) {});
  ASSERT_TRUE(bus_.Await([&] { return bus_.Backlog(kSubscription) == 0; }));
  ASSERT_TRUE(bus_.admin().SeekToSnapshot(kSubscription, "projects/p/snapshots/x").ok());
  ASSERT_TRUE(sink.AwaitCount(2));
  ASSERT_TRUE(bus_.admin().SeekToTime(kSubscription, WallTime{}).ok());
  ASSERT_TRUE(sink.AwaitCount(3));
  EXPECT_EQ(bus_.seeks().size(), 2u);
}

TEST_F(FakeBusTest, ItsReceiversAreServices) {
  CollectingSink sink;
  StressService([&] {
    pubsub::ReceiverOptions options;
    options.subscription = kSubscription;
    return std::unique_ptr<Service>(bus_.NewReceiver(options, sink));
  });
}

}  // namespace
}  // namespace lockstep::testing
