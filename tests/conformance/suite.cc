#include "tests/conformance/suite.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <future>

#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::conformance {
namespace {

constexpr char kProject[] = "conformance";

// Publish and Acknowledge answer later: waits for it.
template <typename Results, typename Call>
Results Answer(const Call& call) {
  std::promise<Results> promise;
  auto future = promise.get_future();
  call([&promise](Results results) { promise.set_value(std::move(results)); });
  return future.get();
}

}  // namespace

std::vector<Setup> Setups() {
  std::vector<Setup> setups = {
      {"GrpcOnLockstep", pubsub::TransportKind::kGrpc, &LockstepEmulator},
      {"GrpcOnGoogle", pubsub::TransportKind::kGrpc, &GoogleEmulator},
  };
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
  setups.push_back(
      {"GoogleCloudCppOnLockstep", pubsub::TransportKind::kGoogleCloudCpp, &LockstepEmulator});
  setups.push_back(
      {"GoogleCloudCppOnGoogle", pubsub::TransportKind::kGoogleCloudCpp, &GoogleEmulator});
#endif
  return setups;
}

void Bus::SetUp() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  // Resource ids know no slash, and a server may outlive this run.
  static int run = 0;  // with --gtest_repeat
  case_ = fmt::format("c{}-{}-{}", getpid(), run++, info->name());
  for (char& c : case_) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  const auto server = GetParam().server();
  if (!server.ok()) GTEST_SKIP() << "SKIPPED: " << MessageOf(server.status());
  server_ = *server;
  features_ = server_->features();
  if (GetParam().transport == pubsub::TransportKind::kGoogleCloudCpp) {
    // What its client can't do, see docs/google-cloud-cpp.md.
    features_.several_per_key = false;
    features_.stream_ends_reported = false;
    features_.receipts = false;
    features_.plain_acks_retried = false;
    features_.stops_cleanly = false;
    features_.client_id = false;
    // It ends streams by cancelling them.
    features_.receiving_again = features_.forgets_cancelled_streams;
  }
  transport_ = AnotherTransport();
  ASSERT_NE(transport_, nullptr);
}

std::unique_ptr<pubsub::Transport> Bus::AnotherTransport() const {
  pubsub::TransportOptions options;
  options.kind = GetParam().transport;
  options.emulator_host = server_->address();
  auto transport = pubsub::MakeTransport(options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

std::string Bus::TopicNamed(const std::string& id) const {
  return pubsub::TopicName(kProject, case_ + "-" + id);
}
std::string Bus::SubscriptionNamed(const std::string& id) const {
  return pubsub::SubscriptionName(kProject, case_ + "-" + id);
}
std::string Bus::SnapshotNamed(const std::string& id) const {
  return pubsub::SnapshotName(kProject, case_ + "-" + id);
}
std::string Bus::SchemaNamed(const std::string& id) const {
  return pubsub::SchemaName(kProject, case_ + "-" + id);
}

std::string Bus::MakeTopic(const std::string& id) {
  pubsub::Topic topic;
  topic.name = TopicNamed(id);
  const auto made = admin().CreateTopic(topic);
  EXPECT_TRUE(made.ok()) << made.status();
  return topic.name;
}

std::string Bus::MakeSubscription(pubsub::Subscription settings, const std::string& id) {
  settings.name = SubscriptionNamed(id);
  if (settings.topic.empty()) settings.topic = TopicNamed("topic");
  const auto made = admin().CreateSubscription(settings);
  EXPECT_TRUE(made.ok()) << made.status();
  return settings.name;
}

std::unique_ptr<pubsub::Receiver> Bus::Receive(const std::string& subscription,
                                               pubsub::DeliverySink& sink,
                                               pubsub::ReceiverOptions options) {
  options.subscription = subscription;
  auto receiver = transport_->NewReceiver(options, sink);
  const absl::Status started = receiver->Start();
  EXPECT_TRUE(started.ok()) << started;
  return receiver;
}

std::unique_ptr<Bus::Acking> Bus::ReceiveAndAck(const std::string& subscription,
                                                pubsub::ReceiverOptions options) {
  auto acking = std::make_unique<Acking>();
  options.subscription = subscription;
  acking->receiver = transport_->NewReceiver(options, acking->sink);
  acking->sink.after_batch = [receiver = acking->receiver.get()](const auto& batch) {
    std::vector<pubsub::AckToken> tokens;
    for (const pubsub::Delivery& delivery : batch) tokens.push_back(delivery.token);
    receiver->Acknowledge(std::move(tokens), [](const std::vector<absl::Status>&) {});
  };
  const absl::Status started = acking->receiver->Start();
  EXPECT_TRUE(started.ok()) << started;
  return acking;
}

std::unique_ptr<pubsub::Publisher>& Bus::publisher() {
  if (publisher_ == nullptr) publisher_ = transport_->NewPublisher({});
  return publisher_;
}

std::vector<absl::StatusOr<MessageId>> Bus::Publish(const std::string& topic,
                                                    std::vector<pubsub::Message> messages) {
  return Answer<std::vector<absl::StatusOr<MessageId>>>([&](pubsub::Publisher::Done done) {
    publisher()->Publish(topic, std::move(messages), std::move(done));
  });
}

void Bus::PublishAll(const std::string& topic, std::vector<pubsub::Message> messages) {
  for (const auto& result : Publish(topic, std::move(messages))) {
    ASSERT_TRUE(result.ok()) << result.status();
  }
}

std::vector<absl::Status> Bus::Ack(pubsub::Receiver& receiver,
                                   std::vector<pubsub::AckToken> tokens) {
  return Answer<std::vector<absl::Status>>([&](pubsub::Receiver::Done done) {
    receiver.Acknowledge(std::move(tokens), std::move(done));
  });
}

void Bus::AckUpTo(pubsub::Receiver& receiver, const testing::CollectingSink& sink, size_t from,
                  size_t to) {
  while (from < to) {
    ASSERT_TRUE(sink.AwaitCount(from + 1)) << from;
    std::vector<pubsub::AckToken> tokens = TokensOf(sink, from);
    tokens.resize(std::min(tokens.size(), to - from));
    from += tokens.size();
    Ack(receiver, std::move(tokens));
  }
}

std::vector<absl::Status> Bus::Nack(pubsub::Receiver& receiver,
                                    std::vector<pubsub::AckToken> tokens) {
  return Answer<std::vector<absl::Status>>(
      [&](pubsub::Receiver::Done done) { receiver.Release(std::move(tokens), std::move(done)); });
}

std::vector<pubsub::AckToken> TokensOf(const testing::CollectingSink& sink, size_t from) {
  std::vector<pubsub::AckToken> tokens = sink.tokens();
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(from));
  return tokens;
}

pubsub::Message Text(std::string data, std::string key) {
  pubsub::Message message;
  message.data = std::move(data);
  message.ordering_key = std::move(key);
  return message;
}

std::vector<pubsub::Message> Sequences(int keys, int each) {
  std::vector<pubsub::Message> messages;
  for (int i = 0; i < each; ++i) {
    for (int key = 0; key < keys; ++key) {
      messages.push_back(Text(std::to_string(i), "k" + std::to_string(key)));
    }
  }
  return messages;
}

std::vector<std::string> Numbers(int count) {
  std::vector<std::string> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(std::to_string(i));
  return numbers;
}

}  // namespace lockstep::conformance
