#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "pubsub/transport.h"
#include "tests/conformance/server.h"
#include "tests/support/collecting_sink.h"

namespace lockstep::conformance {

// One transport on one server.
struct Setup {
  std::string name;  // GrpcOnLockstep, …
  pubsub::TransportKind transport;
  absl::StatusOr<std::shared_ptr<Server>> (*server)();

  friend void PrintTo(const Setup& setup, std::ostream* out) { *out << setup.name; }
};

std::vector<Setup> Setups();

// Every case has topics and subscriptions of its own, so that cases run side by side on one server.
class Bus : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override;

  const Features& features() const { return features_; }
  Server& server() const { return *server_; }
  pubsub::Transport& transport() const { return *transport_; }
  pubsub::Admin& admin() const { return transport_->admin(); }
  std::unique_ptr<pubsub::Transport> AnotherTransport() const;

  // Names of this case: "x" -> projects/conformance/topics/<case>-x.
  std::string TopicNamed(const std::string& id) const;
  std::string SubscriptionNamed(const std::string& id) const;
  std::string SnapshotNamed(const std::string& id) const;
  std::string SchemaNamed(const std::string& id) const;

  std::string MakeTopic(const std::string& id = "topic");
  // On the topic "topic" unless `settings` names another.
  std::string MakeSubscription(pubsub::Subscription settings = {}, const std::string& id = "sub");
  std::unique_ptr<pubsub::Receiver> Receive(const std::string& subscription,
                                            pubsub::DeliverySink& sink,
                                            pubsub::ReceiverOptions options = {});

  // A sink that acknowledges what it gets, and its receiver.
  struct Acking {
    testing::CollectingSink sink;
    std::unique_ptr<pubsub::Receiver> receiver;  // goes first
  };
  std::unique_ptr<Acking> ReceiveAndAck(const std::string& subscription,
                                        pubsub::ReceiverOptions options = {});

  // Publishes and waits; each message must be taken.
  void PublishAll(const std::string& topic, std::vector<pubsub::Message> messages);
  std::vector<absl::StatusOr<MessageId>> Publish(const std::string& topic,
                                                 std::vector<pubsub::Message> messages);
  std::vector<absl::Status> Ack(pubsub::Receiver& receiver, std::vector<pubsub::AckToken> tokens);
  // Acks deliveries `from` to `to` as they come: not every transport hands over the next of a key
  // before.
  void AckUpTo(pubsub::Receiver& receiver, const testing::CollectingSink& sink, size_t from,
               size_t to);
  std::vector<absl::Status> Nack(pubsub::Receiver& receiver, std::vector<pubsub::AckToken> tokens);

  std::unique_ptr<pubsub::Publisher>& publisher();

 private:
  std::string case_;
  std::shared_ptr<Server> server_;  // Google's is shared by all cases
  Features features_;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<pubsub::Publisher> publisher_;
};

// The tokens of what came, from index `from` on.
std::vector<pubsub::AckToken> TokensOf(const testing::CollectingSink& sink, size_t from = 0);
pubsub::Message Text(std::string data, std::string key = "");
// `keys` keys with `each` messages: "0", "1", … for key "k0", "k1", …; round robin.
std::vector<pubsub::Message> Sequences(int keys, int each);
std::vector<std::string> Numbers(int count);

// Skips the case, naming what the server lacks.
#define NEEDS(feature) \
  if (!features().feature) GTEST_SKIP() << GetParam().name << " lacks: " #feature

}  // namespace lockstep::conformance
