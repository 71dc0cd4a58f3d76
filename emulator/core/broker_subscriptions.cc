#include <mutex>
#include <optional>
#include <utility>

#include "emulator/core/broker.h"
#include "emulator/core/subscription_config.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

absl::StatusOr<pb::Subscription> Broker::CreateSubscription(pb::Subscription config) {
  RETURN_IF_ERROR(ResourceName::Parse(config.name(), "subscriptions").status());
  ASSIGN_OR_RETURN(const auto topic, FindTopic(config.topic()));
  RETURN_IF_ERROR(CheckSubscription(&config));
  config.clear_detached();
  config.clear_topic_message_retention_duration();
  if (config.has_dead_letter_policy()) {
    RETURN_IF_ERROR(FindTopic(config.dead_letter_policy().dead_letter_topic()).status());
  }
  std::optional<Filter> filter;
  if (!config.filter().empty()) {
    ASSIGN_OR_RETURN(filter, Filter::Parse(config.filter()));
  }
  const auto exists = [&] {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "Resource already exists in the project (resource={}).", config.name());
  };
  {
    std::shared_lock lock(mu_);
    if (subscriptions_.count(config.name()) > 0) return exists();
  }
  auto subscription = topic->Attach([&](uint64_t first_sequence, Millis retention) {
    return std::make_shared<Subscription>(config, filter, next_subscription_++, first_sequence,
                                          retention, timekeeper_, this);
  });
  Attached attached{subscription, topic};
  {
    std::unique_lock lock(mu_);
    if (!subscriptions_.emplace(config.name(), attached).second) {
      lock.unlock();
      topic->Detach(subscription.get());
      return exists();
    }
  }
  subscription->StartTime();
  return Shown(attached);
}

absl::StatusOr<Broker::Attached> Broker::FindAttached(const std::string& name) const {
  RETURN_IF_ERROR(ResourceName::Parse(name, "subscriptions").status());
  std::shared_lock lock(mu_);
  const auto it = subscriptions_.find(name);
  if (it == subscriptions_.end()) return NotFound("Resource not found (resource={}).", name);
  return it->second;
}

absl::StatusOr<std::shared_ptr<Subscription>> Broker::FindSubscription(
    const std::string& name) const {
  ASSIGN_OR_RETURN(Attached attached, FindAttached(name));
  return std::move(attached.subscription);
}

pb::Subscription Broker::Shown(const Attached& attached) const {
  pb::Subscription config = attached.subscription->Config();
  const pb::Topic topic = attached.topic->Config();
  if (topic.has_message_retention_duration() && config.topic() != kDeletedTopic) {
    *config.mutable_topic_message_retention_duration() = topic.message_retention_duration();
  }
  return config;
}

absl::StatusOr<pb::Subscription> Broker::GetSubscription(const std::string& name) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(name));
  return Shown(attached);
}

absl::StatusOr<pb::Subscription> Broker::UpdateSubscription(
    const pb::UpdateSubscriptionRequest& request) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription().name()));
  pb::Subscription config = attached.subscription->Config();
  RETURN_IF_ERROR(RefuseUnsupportedSubscription(request.subscription()));
  RETURN_IF_ERROR(
      ApplyMask(request.update_mask(), request.subscription(),
                {"ack_deadline_seconds", "retain_acked_messages", "message_retention_duration",
                 "labels", "expiration_policy", "dead_letter_policy", "retry_policy",
                 "enable_exactly_once_delivery", "push_config"},
                &config));
  RETURN_IF_ERROR(CheckSubscription(&config));
  if (config.has_dead_letter_policy()) {
    RETURN_IF_ERROR(FindTopic(config.dead_letter_policy().dead_letter_topic()).status());
  }
  attached.subscription->SetConfig(config);
  return Shown(attached);
}

absl::StatusOr<Page<pb::Subscription>> Broker::ListSubscriptions(const std::string& project,
                                                                 const PageRequest& page) {
  RETURN_IF_ERROR(CheckProject(project));
  std::map<std::string, Attached> subscriptions;
  {
    std::shared_lock lock(mu_);
    subscriptions = subscriptions_;
  }
  return ListPage<pb::Subscription>(subscriptions, project + "/subscriptions/", page,
                                    [this](const Attached& attached) {
                                      return std::optional<pb::Subscription>(Shown(attached));
                                    });
}

absl::Status Broker::DeleteSubscription(const std::string& name) {
  RETURN_IF_ERROR(ResourceName::Parse(name, "subscriptions").status());
  return RemoveSubscription(name);
}

absl::Status Broker::RemoveSubscription(const std::string& name) {
  Attached attached;
  {
    std::unique_lock lock(mu_);
    const auto it = subscriptions_.find(name);
    if (it == subscriptions_.end()) return NotFound("Resource not found (resource={}).", name);
    attached = std::move(it->second);
    subscriptions_.erase(it);
  }
  attached.topic->Detach(attached.subscription.get());
  attached.subscription->Close(NotFound("Resource not found (resource={}).", name));
  return absl::OkStatus();
}

absl::Status Broker::DetachSubscription(const std::string& name) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(name));
  attached.topic->Detach(attached.subscription.get());
  pb::Subscription config = attached.subscription->Config();
  config.set_detached(true);
  attached.subscription->SetConfig(config);
  attached.subscription->Close(
      FailedPrecondition("The subscription is detached from its topic (resource={}).", name));
  return absl::OkStatus();
}

void Broker::WakeAll() {
  std::vector<std::shared_ptr<Subscription>> all;
  {
    std::shared_lock lock(mu_);
    for (const auto& [name, attached] : subscriptions_) all.push_back(attached.subscription);
  }
  for (const auto& subscription : all) subscription->WakeAll();
}

bool Broker::CanForward(const std::string& topic) { return FindTopic(topic).ok(); }

void Broker::Forward(const pb::Subscription& from, const std::string& topic,
                     const std::vector<DeadLetter>& letters) {
  const auto found = FindTopic(topic);
  const auto source = ResourceName::Parse(from.name(), "subscriptions");
  if (!found.ok() || !source.ok()) return;  // deleted in this very moment
  std::vector<std::shared_ptr<Message>> messages;
  for (const DeadLetter& letter : letters) {
    pb::PubsubMessage message;
    if (!message.ParseFromString(letter.message->wire)) continue;
    auto& attributes = *message.mutable_attributes();
    attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = fmt::format("{}", letter.attempts);
    attributes["CloudPubSubDeadLetterSourceSubscription"] = source->id;
    attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] = source->project;
    attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] =
        FormatTimestamp(letter.message->publish_time);
    messages.push_back(MakeMessage(message));
  }
  (*found)->Publish(std::move(messages));
}

void Broker::Expired(const std::string& name) { (void)RemoveSubscription(name); }

}  // namespace lockstep::emulator
