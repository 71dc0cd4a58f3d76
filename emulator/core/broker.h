#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulator/core/subscription.h"
#include "emulator/core/timekeeper.h"
#include "emulator/core/topic.h"
#include "emulator/wire/page.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

class SchemaRegistry;

// All topics, subscriptions and snapshots of the process, by name: what the RPCs do, without gRPC.
// Any thread may call it. Its own lock guards the maps only and is never held while a topic or a
// subscription is called; the deadlock-free order is topic, subscription, broker.
class Broker : public SubscriptionOffice {
 public:
  Broker(Timekeeper* timekeeper, SchemaRegistry* schemas);
  ~Broker() override;

  // broker_topics.cc
  absl::StatusOr<google::pubsub::v1::Topic> CreateTopic(google::pubsub::v1::Topic config);
  absl::StatusOr<google::pubsub::v1::Topic> UpdateTopic(
      const google::pubsub::v1::UpdateTopicRequest& request);
  absl::StatusOr<google::pubsub::v1::Topic> GetTopic(const std::string& name);
  absl::StatusOr<Page<google::pubsub::v1::Topic>> ListTopics(const std::string& project,
                                                             const PageRequest& page);
  absl::StatusOr<Page<std::string>> ListTopicSubscriptions(const std::string& topic,
                                                           const PageRequest& page);
  absl::StatusOr<Page<std::string>> ListTopicSnapshots(const std::string& topic,
                                                       const PageRequest& page);
  absl::Status DeleteTopic(const std::string& name);
  // Topics that named this schema name `_deleted-schema_` from now on.
  void ForgetSchema(const std::string& name);
  absl::StatusOr<std::vector<std::string>> Publish(
      const google::pubsub::v1::PublishRequest& request);

  // broker_subscriptions.cc
  absl::StatusOr<google::pubsub::v1::Subscription> CreateSubscription(
      google::pubsub::v1::Subscription config);
  absl::StatusOr<google::pubsub::v1::Subscription> UpdateSubscription(
      const google::pubsub::v1::UpdateSubscriptionRequest& request);
  absl::StatusOr<google::pubsub::v1::Subscription> GetSubscription(const std::string& name);
  absl::StatusOr<Page<google::pubsub::v1::Subscription>> ListSubscriptions(
      const std::string& project, const PageRequest& page);
  absl::Status DeleteSubscription(const std::string& name);
  absl::Status DetachSubscription(const std::string& name);
  // For the calls that move messages.
  absl::StatusOr<std::shared_ptr<Subscription>> FindSubscription(const std::string& name) const;
  void WakeAll();

  // broker_snapshots.cc
  absl::StatusOr<google::pubsub::v1::Snapshot> CreateSnapshot(
      const google::pubsub::v1::CreateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> UpdateSnapshot(
      const google::pubsub::v1::UpdateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> GetSnapshot(const std::string& name);
  absl::StatusOr<Page<google::pubsub::v1::Snapshot>> ListSnapshots(const std::string& project,
                                                                   const PageRequest& page);
  absl::Status DeleteSnapshot(const std::string& name);
  absl::Status Seek(const google::pubsub::v1::SeekRequest& request);

 private:
  struct Attached {
    std::shared_ptr<Subscription> subscription;
    std::shared_ptr<Topic> topic;  // also when deleted: it may keep what a seek brings back
  };
  struct KeptSnapshot {
    google::pubsub::v1::Snapshot proto;
    std::shared_ptr<Topic> topic;
    uint64_t hold = 0;
    AckSnapshot state;
  };
  using SnapshotPtr = std::shared_ptr<const KeptSnapshot>;

  absl::StatusOr<std::shared_ptr<Topic>> FindTopic(const std::string& name) const;
  absl::StatusOr<Attached> FindAttached(const std::string& name) const;
  absl::StatusOr<SnapshotPtr> FindSnapshot(const std::string& name) const;
  absl::Status CheckTopic(google::pubsub::v1::Topic* config) const;
  google::pubsub::v1::Subscription Shown(const Attached& attached) const;
  absl::Status RemoveSubscription(const std::string& name);

  // SubscriptionOffice
  bool CanForward(const std::string& topic) override;
  void Forward(const google::pubsub::v1::Subscription& from, const std::string& topic,
               const std::vector<DeadLetter>& letters) override;
  void Expired(const std::string& name) override;

  Timekeeper* const timekeeper_;
  SchemaRegistry* const schemas_;
  const Clock& clock_;
  std::atomic<uint64_t> next_message_id_;
  std::atomic<uint32_t> next_subscription_{1};

  mutable std::shared_mutex mu_;
  std::map<std::string, std::shared_ptr<Topic>> topics_;
  std::map<std::string, Attached> subscriptions_;
  std::map<std::string, SnapshotPtr> snapshots_;
};

}  // namespace lockstep::emulator
