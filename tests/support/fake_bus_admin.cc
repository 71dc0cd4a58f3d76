#include "tests/support/fake_bus_admin.h"

#include <fmt/format.h>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::testing {
namespace {

template <typename Map>
absl::StatusOr<typename Map::mapped_type> Create(Map& map, const typename Map::mapped_type& item) {
  if (!map.emplace(item.name, item).second) {
    return absl::AlreadyExistsError(fmt::format("{} exists", item.name));
  }
  return item;
}

template <typename Map>
absl::StatusOr<typename Map::mapped_type> Get(const Map& map, const std::string& name) {
  const auto item = map.find(name);
  if (item == map.end()) return NotFound("no {}", name);
  return item->second;
}

template <typename Map>
absl::Status Delete(Map& map, const std::string& name) {
  return map.erase(name) > 0 ? absl::OkStatus() : NotFound("no {}", name);
}

bool InProject(const std::string& name, const std::string& project) {
  const std::string prefix = project.rfind("projects/", 0) == 0 ? project : "projects/" + project;
  return name.rfind(prefix + "/", 0) == 0;
}

}  // namespace

absl::StatusOr<pubsub::Topic> FakeBusAdmin::CreateTopic(const pubsub::Topic& topic) {
  std::scoped_lock lock(bus_.mu_);
  return Create(bus_.topics_, topic);
}

absl::StatusOr<pubsub::Topic> FakeBusAdmin::GetTopic(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  return Get(bus_.topics_, name);
}

absl::StatusOr<pubsub::Topic> FakeBusAdmin::UpdateTopic(const pubsub::Topic& topic,
                                                        const std::vector<std::string>&) {
  std::scoped_lock lock(bus_.mu_);
  if (bus_.topics_.count(topic.name) == 0) return NotFound("no {}", topic.name);
  return bus_.topics_[topic.name] = topic;
}

absl::StatusOr<std::vector<pubsub::Topic>> FakeBusAdmin::ListTopics(const std::string& project) {
  std::scoped_lock lock(bus_.mu_);
  std::vector<pubsub::Topic> topics;
  for (const auto& [name, topic] : bus_.topics_) {
    if (InProject(name, project)) topics.push_back(topic);
  }
  return topics;
}

absl::Status FakeBusAdmin::DeleteTopic(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  RETURN_IF_ERROR(Delete(bus_.topics_, name));
  for (auto& [sub_name, sub] : bus_.subscriptions_) {
    if (sub.settings.topic == name) sub.settings.topic = "_deleted-topic_";
  }
  return absl::OkStatus();
}

absl::StatusOr<pubsub::Subscription> FakeBusAdmin::CreateSubscription(
    const pubsub::Subscription& subscription) {
  std::scoped_lock lock(bus_.mu_);
  if (bus_.topics_.count(subscription.topic) == 0) return NotFound("no {}", subscription.topic);
  if (bus_.subscriptions_.count(subscription.name) > 0) {
    return absl::AlreadyExistsError(fmt::format("{} exists", subscription.name));
  }
  bus_.subscriptions_[subscription.name].settings = subscription;
  return subscription;
}

absl::StatusOr<pubsub::Subscription> FakeBusAdmin::GetSubscription(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  const auto sub = bus_.subscriptions_.find(name);
  if (sub == bus_.subscriptions_.end()) return NotFound("no {}", name);
  return sub->second.settings;
}

absl::StatusOr<pubsub::Subscription> FakeBusAdmin::UpdateSubscription(
    const pubsub::Subscription& subscription, const std::vector<std::string>&) {
  std::scoped_lock lock(bus_.mu_);
  const auto sub = bus_.subscriptions_.find(subscription.name);
  if (sub == bus_.subscriptions_.end()) return NotFound("no {}", subscription.name);
  return sub->second.settings = subscription;
}

absl::StatusOr<std::vector<pubsub::Subscription>> FakeBusAdmin::ListSubscriptions(
    const std::string& project) {
  std::scoped_lock lock(bus_.mu_);
  std::vector<pubsub::Subscription> subscriptions;
  for (const auto& [name, sub] : bus_.subscriptions_) {
    if (InProject(name, project)) subscriptions.push_back(sub.settings);
  }
  return subscriptions;
}

absl::Status FakeBusAdmin::DeleteSubscription(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  return Delete(bus_.subscriptions_, name);
}

absl::Status FakeBusAdmin::DetachSubscription(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  const auto sub = bus_.subscriptions_.find(name);
  if (sub == bus_.subscriptions_.end()) return NotFound("no {}", name);
  sub->second.settings.detached = true;
  sub->second.entries.clear();
  return absl::OkStatus();
}

absl::StatusOr<pubsub::Snapshot> FakeBusAdmin::CreateSnapshot(
    const std::string& name, const std::string& subscription,
    const std::map<std::string, std::string>& labels) {
  std::scoped_lock lock(bus_.mu_);
  const auto sub = bus_.subscriptions_.find(subscription);
  if (sub == bus_.subscriptions_.end()) return NotFound("no {}", subscription);
  if (bus_.snapshots_.count(name) > 0) {
    return absl::AlreadyExistsError(fmt::format("{} exists", name));
  }
  std::set<std::string> acked;
  for (const auto& entry : sub->second.entries) {
    if (entry.acked) acked.insert(entry.message->message_id.value());
  }
  const pubsub::Snapshot snapshot{name, sub->second.settings.topic,
                                  std::chrono::system_clock::now() + std::chrono::hours(7 * 24),
                                  labels};
  bus_.snapshots_[name] = {snapshot, std::move(acked)};
  return snapshot;
}

absl::StatusOr<pubsub::Snapshot> FakeBusAdmin::GetSnapshot(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  ASSIGN_OR_RETURN(auto snapshot, Get(bus_.snapshots_, name));
  return snapshot.first;
}

absl::StatusOr<std::vector<pubsub::Snapshot>> FakeBusAdmin::ListSnapshots(
    const std::string& project) {
  std::scoped_lock lock(bus_.mu_);
  std::vector<pubsub::Snapshot> snapshots;
  for (const auto& [name, snapshot] : bus_.snapshots_) {
    if (InProject(name, project)) snapshots.push_back(snapshot.first);
  }
  return snapshots;
}

absl::Status FakeBusAdmin::DeleteSnapshot(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  return Delete(bus_.snapshots_, name);
}

absl::Status FakeBusAdmin::SeekToTime(const std::string& subscription, WallTime time) {
  {
    std::scoped_lock lock(bus_.mu_);
    const auto sub = bus_.subscriptions_.find(subscription);
    if (sub == bus_.subscriptions_.end()) return NotFound("no {}", subscription);
    bus_.seeks_.push_back(fmt::format("{} {}", subscription, FormatTimestamp(time)));
    for (auto& entry : sub->second.entries) {
      entry.token.clear();
      const bool lost = entry.acked && !sub->second.settings.retain_acked;
      entry.acked = lost || entry.message->time < time;
    }
  }
  bus_.Post([] {});
  return absl::OkStatus();
}

absl::Status FakeBusAdmin::SeekToSnapshot(const std::string& subscription,
                                          const std::string& snapshot) {
  {
    std::scoped_lock lock(bus_.mu_);
    const auto sub = bus_.subscriptions_.find(subscription);
    const auto shot = bus_.snapshots_.find(snapshot);
    if (sub == bus_.subscriptions_.end()) return NotFound("no {}", subscription);
    if (shot == bus_.snapshots_.end()) return NotFound("no {}", snapshot);
    bus_.seeks_.push_back(fmt::format("{} {}", subscription, snapshot));
    for (auto& entry : sub->second.entries) {
      entry.token.clear();
      entry.acked = shot->second.second.count(entry.message->message_id.value()) > 0;
    }
  }
  bus_.Post([] {});
  return absl::OkStatus();
}

absl::StatusOr<pubsub::Schema> FakeBusAdmin::CreateSchema(const pubsub::Schema& schema) {
  std::scoped_lock lock(bus_.mu_);
  return Create(bus_.schemas_, schema);
}

absl::StatusOr<pubsub::Schema> FakeBusAdmin::GetSchema(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  return Get(bus_.schemas_, name);
}

absl::StatusOr<pubsub::Schema> FakeBusAdmin::CommitSchema(const pubsub::Schema& schema) {
  std::scoped_lock lock(bus_.mu_);
  if (bus_.schemas_.count(schema.name) == 0) return NotFound("no {}", schema.name);
  return bus_.schemas_[schema.name] = schema;
}

absl::Status FakeBusAdmin::DeleteSchema(const std::string& name) {
  std::scoped_lock lock(bus_.mu_);
  return Delete(bus_.schemas_, name);
}

}  // namespace lockstep::testing
