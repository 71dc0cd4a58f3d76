#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulator/core/journal.h"
#include "emulator/core/subscription.h"
#include "emulator/core/timekeeper.h"
#include "emulator/core/topic.h"
#include "emulator/schema/schema_registry.h"
#include "emulator/wire/names.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/clock.h"
#include "platform/status.h"

namespace lockstep::emulator {

// All topics, subscriptions and snapshots of the process, by name: what the RPCs do, without gRPC.
// Any thread may call it. Its own lock guards the maps only and is never held while a topic or a
// subscription is called; the deadlock-free order is changes, topic, subscription, broker.
class Broker {
 public:
  // `journal`: what changes is written there; null = nothing outlives the process.
  Broker(Timekeeper* timekeeper, SchemaRegistry* schemas, Journal* journal = nullptr);

  // broker_restore.cc: what a journal kept. REQUIRES: it has nothing yet, and nobody calls it.
  absl::Status Restore(SavedState saved);

  // broker_topics.cc
  absl::StatusOr<pb::Topic> CreateTopic(const pb::Topic& request);
  absl::StatusOr<pb::Topic> UpdateTopic(const pb::UpdateTopicRequest& request);
  absl::StatusOr<pb::Topic> GetTopic(const pb::GetTopicRequest& request);
  absl::StatusOr<pb::ListTopicsResponse> ListTopics(const pb::ListTopicsRequest& request);
  absl::StatusOr<pb::ListTopicSubscriptionsResponse> ListTopicSubscriptions(
      const pb::ListTopicSubscriptionsRequest& request);
  absl::StatusOr<pb::ListTopicSnapshotsResponse> ListTopicSnapshots(
      const pb::ListTopicSnapshotsRequest& request);
  absl::Status DeleteTopic(const pb::DeleteTopicRequest& request);
  // Topics that named this schema name `_deleted-schema_` from now on.
  absl::Status DeleteSchema(const pb::DeleteSchemaRequest& request);

  // broker_publish.cc
  // `wakes` are to be woken once the publish is answered: a client hears of its message before
  // anybody gets it, as a rule.
  absl::StatusOr<pb::PublishResponse> Publish(const pb::PublishRequest& request,
                                              Subscription::Wakes* wakes);
  // Of a subscription's dead letters. CanForward is called with the subscription's lock held.
  bool CanForward(const std::string& topic) const { return FindTopic(topic).ok(); }
  void Forward(const std::string& subscription, const std::string& topic,
               const std::vector<DeadLetter>& letters);

  // broker_subscriptions.cc
  absl::StatusOr<pb::Subscription> CreateSubscription(const pb::Subscription& request);
  absl::StatusOr<pb::Subscription> UpdateSubscription(const pb::UpdateSubscriptionRequest& request);
  absl::StatusOr<pb::Subscription> GetSubscription(const pb::GetSubscriptionRequest& request);
  absl::StatusOr<pb::ListSubscriptionsResponse> ListSubscriptions(
      const pb::ListSubscriptionsRequest& request);
  absl::Status DeleteSubscription(const pb::DeleteSubscriptionRequest& request);
  absl::Status DetachSubscription(const pb::DetachSubscriptionRequest& request);
  absl::Status ModifyPushConfig(const pb::ModifyPushConfigRequest& request);
  // For the calls that move messages.
  absl::StatusOr<std::shared_ptr<Subscription>> FindSubscription(const std::string& name) const;
  void WakeAll();
  // Of a subscription, with its lock held.
  absl::Status KeepAcks(const std::string& name, const std::vector<uint64_t>& acked);
  absl::Status KeepSeek(const std::string& name,
                        const std::function<std::vector<MessagePtr>()>& unacked);

  // broker_snapshots.cc
  absl::StatusOr<pb::Snapshot> CreateSnapshot(const pb::CreateSnapshotRequest& request);
  absl::StatusOr<pb::Snapshot> UpdateSnapshot(const pb::UpdateSnapshotRequest& request);
  absl::StatusOr<pb::Snapshot> GetSnapshot(const pb::GetSnapshotRequest& request);
  absl::StatusOr<pb::ListSnapshotsResponse> ListSnapshots(const pb::ListSnapshotsRequest& request);
  absl::Status DeleteSnapshot(const pb::DeleteSnapshotRequest& request);
  absl::Status Seek(const pb::SeekRequest& request);

 private:
  struct Attached {
    std::shared_ptr<Subscription> subscription;
    std::shared_ptr<Topic> topic;  // also when deleted: it may keep what a seek brings back
  };
  struct KeptSnapshot {
    pb::Snapshot proto;
    std::shared_ptr<Topic> topic;
    uint64_t hold = 0;
    AckSnapshot state;
  };
  using SnapshotPtr = std::shared_ptr<const KeptSnapshot>;
  template <typename Resource>
  using ByName = std::map<std::string, Resource>;

  // On one of the three maps, under the lock. `collection` is "topics", "subscriptions" or
  // "snapshots".
  template <typename Resource>
  absl::StatusOr<Resource> Find(const ByName<Resource>& map, const std::string& name,
                                std::string_view collection) const {
    RETURN_IF_ERROR(ResourceName::Parse(name, collection).status());
    std::shared_lock lock(mu_);
    const auto it = map.find(name);
    if (it == map.end()) return ResourceNotFound(name);
    return it->second;
  }
  template <typename Resource>
  absl::Status Insert(const std::string& name, Resource resource, ByName<Resource>* map) {
    std::unique_lock lock(mu_);
    const bool is_new = map->emplace(name, std::move(resource)).second;
    return is_new ? absl::OkStatus() : ResourceExists(name);
  }
  template <typename Resource>
  absl::StatusOr<Resource> Remove(const std::string& name, std::string_view collection,
                                  ByName<Resource>* map) {
    RETURN_IF_ERROR(ResourceName::Parse(name, collection).status());
    std::unique_lock lock(mu_);
    auto node = map->extract(name);
    if (node.empty()) return ResourceNotFound(name);
    return std::move(node.mapped());
  }
  template <typename Resource>
  ByName<Resource> Copy(const ByName<Resource>& map) const {
    std::shared_lock lock(mu_);
    return map;
  }

  absl::StatusOr<std::shared_ptr<Topic>> FindTopic(const std::string& name) const {
    return Find(topics_, name, "topics");
  }
  absl::StatusOr<Attached> FindAttached(const std::string& name) const {
    return Find(subscriptions_, name, "subscriptions");
  }
  absl::StatusOr<SnapshotPtr> FindSnapshot(const std::string& name) const {
    return Find(snapshots_, name, "snapshots");
  }
  void ExpireSnapshot(const KeptSnapshot& snapshot);
  absl::Status CheckTopic(pb::Topic* config) const;
  absl::Status CheckSubscription(pb::Subscription* config) const;

  Timekeeper* const timekeeper_;
  SchemaRegistry* const schemas_;
  Journal* const journal_;
  const Clock& clock_;
  std::atomic<uint64_t> next_message_id_;
  // Not from 1: an ack id from before a restart must not fit a subscription of now.
  std::atomic<uint32_t> next_subscription_{std::random_device()()};

  std::mutex changes_;  // one creation, update or deletion at a time; goes before the other locks
  uint64_t next_topic_ = 1;

  mutable std::shared_mutex mu_;
  ByName<std::shared_ptr<Topic>> topics_;
  ByName<Attached> subscriptions_;
  ByName<SnapshotPtr> snapshots_;
};

}  // namespace lockstep::emulator
