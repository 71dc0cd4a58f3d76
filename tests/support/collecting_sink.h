#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pubsub/receiver.h"

namespace lockstep::testing {

// A sink that keeps all it hears and lets a test wait for it. Safe from any thread.
class CollectingSink : public pubsub::DeliverySink {
 public:
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override;
  void OnLeaseLost(std::vector<pubsub::AckToken> tokens) override;
  void OnStreamState(const absl::Status& state) override;

  // Called for each batch on the transport's thread, before it is kept; set it before the start.
  std::function<void(const std::vector<pubsub::Delivery>&)> on_batch;
  // Once they are collected: who acks here lets another stream have what follows.
  std::function<void(const std::vector<pubsub::Delivery>&)> after_batch;

  std::vector<pubsub::Delivery> deliveries() const;
  std::vector<pubsub::AckToken> lost() const;
  std::vector<absl::Status> states() const;
  size_t count() const;
  // The data of what came, per ordering key, in the order of arrival.
  std::map<std::string, std::vector<std::string>> by_key() const;
  std::vector<std::string> data() const;
  std::vector<pubsub::AckToken> tokens() const;

  bool AwaitCount(size_t count, Millis at_most = Millis(30'000)) const;
  bool Await(const std::function<bool()>& condition, Millis at_most = Millis(30'000)) const;

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  std::vector<pubsub::Delivery> deliveries_;
  std::vector<pubsub::AckToken> lost_;
  std::vector<absl::Status> states_;
};

}  // namespace lockstep::testing
