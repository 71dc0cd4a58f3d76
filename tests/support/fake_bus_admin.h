#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/fake_bus.h"

namespace lockstep::testing {

// FakeBus's topics, subscriptions, snapshots and Seek.
class FakeBusAdmin : public pubsub::Admin {
 public:
  explicit FakeBusAdmin(FakeBus& bus) : bus_(bus) {}

  absl::StatusOr<pubsub::Topic> CreateTopic(const pubsub::Topic& topic) override;
  absl::StatusOr<pubsub::Topic> GetTopic(const std::string& name) override;
  absl::StatusOr<pubsub::Topic> UpdateTopic(const pubsub::Topic& topic,
                                            const std::vector<std::string>& paths) override;
  absl::StatusOr<std::vector<pubsub::Topic>> ListTopics(const std::string& project) override;
  absl::Status DeleteTopic(const std::string& name) override;
  absl::StatusOr<pubsub::Subscription> CreateSubscription(
      const pubsub::Subscription& subscription) override;
  absl::StatusOr<pubsub::Subscription> GetSubscription(const std::string& name) override;
  absl::StatusOr<pubsub::Subscription> UpdateSubscription(
      const pubsub::Subscription& subscription, const std::vector<std::string>& paths) override;
  absl::StatusOr<std::vector<pubsub::Subscription>> ListSubscriptions(
      const std::string& project) override;
  absl::Status DeleteSubscription(const std::string& name) override;
  absl::Status DetachSubscription(const std::string& name) override;
  absl::StatusOr<pubsub::Snapshot> CreateSnapshot(
      const std::string& name, const std::string& subscription,
      const std::map<std::string, std::string>& labels) override;
  absl::StatusOr<pubsub::Snapshot> GetSnapshot(const std::string& name) override;
  absl::StatusOr<std::vector<pubsub::Snapshot>> ListSnapshots(const std::string& project) override;
  absl::Status DeleteSnapshot(const std::string& name) override;
  absl::Status SeekToTime(const std::string& subscription, WallTime time) override;
  absl::Status SeekToSnapshot(const std::string& subscription,
                              const std::string& snapshot) override;
  absl::StatusOr<pubsub::Schema> CreateSchema(const pubsub::Schema& schema) override;
  absl::StatusOr<pubsub::Schema> GetSchema(const std::string& name) override;
  absl::StatusOr<pubsub::Schema> CommitSchema(const pubsub::Schema& schema) override;
  absl::Status DeleteSchema(const std::string& name) override;

 private:
  FakeBus& bus_;
};

}  // namespace lockstep::testing
