#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_bus.h"

namespace lockstep::testing {

// What FakeBus hands out. Their state is guarded by the bus's mutex.

class FakeBusPublisher : public pubsub::Publisher {
 public:
  explicit FakeBusPublisher(FakeBus& bus) : bus_(bus) {}
  ~FakeBusPublisher() override;
  void Publish(const std::string& topic, std::vector<pubsub::Message> messages, Done done) override;
  void SetMaxRequests(int) override {}

 private:
  void Perform(const std::string& topic, std::vector<pubsub::Message> messages, const Done& done);

  FakeBus& bus_;
  int pending_ = 0;
  bool closed_ = false;
};

class FakeBusReceiver : public pubsub::Receiver {
 public:
  FakeBusReceiver(FakeBus& bus, pubsub::ReceiverOptions options, pubsub::DeliverySink& sink)
      : bus_(bus), options_(std::move(options)), sink_(sink) {}
  ~FakeBusReceiver() override { Stop(); }

  absl::Status Start() override;
  void StopPulling() override;
  void Stop() override;
  void Acknowledge(std::vector<pubsub::AckToken> tokens, Done done) override;
  void Release(std::vector<pubsub::AckToken> tokens, Done done) override;

 private:
  friend class FakeBus;
  enum class Life { kNew, kRunning, kDraining, kStopped };

  void Finish(std::vector<pubsub::AckToken> tokens, Done done, bool ack);
  bool HasRoom() const {
    int64_t bytes = 0;
    for (const auto& [token, size] : in_hand_) bytes += size;
    return static_cast<int64_t>(in_hand_.size()) < options_.max_outstanding_messages &&
           bytes < options_.max_outstanding_bytes;
  }

  FakeBus& bus_;
  const pubsub::ReceiverOptions options_;
  pubsub::DeliverySink& sink_;
  Life life_ = Life::kNew;
  bool in_callback_ = false;
  int pending_ = 0;                         // acks and releases without an answer
  std::map<std::string, int64_t> in_hand_;  // token -> bytes
};

}  // namespace lockstep::testing
