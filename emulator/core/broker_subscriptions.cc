#include <optional>
#include <utility>

#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/page.h"

namespace lockstep::emulator {
namespace {

// Also of the part of an update.
absl::Status RefuseUnsupportedSubscription(const pb::Subscription& config) {
  return RefuseUnsupported(
      config,
      {"name", "topic", "ack_deadline_seconds", "retain_acked_messages",
       "message_retention_duration", "labels", "enable_message_ordering", "expiration_policy",
       "filter", "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery",
       // Output only: the service ignores them in a request.
       "detached", "topic_message_retention_duration", "state"});
}

// The configuration, with what its topic adds to it.
pb::Subscription Shown(const Subscription& subscription, const Topic& attached_to) {
  pb::Subscription config = subscription.Config();
  const pb::Topic topic = attached_to.Config();
  if (topic.has_message_retention_duration() && config.topic() != kDeletedTopic) {
    *config.mutable_topic_message_retention_duration() = topic.message_retention_duration();
  }
  return config;
}

}  // namespace

absl::StatusOr<pb::Subscription> Broker::CreateSubscription(const pb::Subscription& request) {
  pb::Subscription config = request;
  if (config.name().empty()) {
    ASSIGN_OR_RETURN(const auto beside, ResourceName::Parse(config.topic(), "topics"));
    config.set_name(AssignName(beside, "subscriptions"));
  }
  RETURN_IF_ERROR(ResourceName::Parse(config.name(), "subscriptions").status());
  ASSIGN_OR_RETURN(const auto topic, FindTopic(config.topic()));
  RETURN_IF_ERROR(RefuseUnsupportedSubscription(config));
  RETURN_IF_ERROR(CheckSubscription(&config));
  config.clear_detached();
  config.clear_topic_message_retention_duration();
  std::optional<Filter> filter;
  if (!config.filter().empty()) {
    ASSIGN_OR_RETURN(filter, Filter::Parse(config.filter()));
  }
  std::scoped_lock changes(changes_);
  if (FindAttached(config.name()).ok()) return ResourceExists(config.name());
  absl::Status kept;
  auto subscription = topic->Attach([&](uint64_t first_sequence) {
    if (journal_ != nullptr) {
      kept = journal_->SaveSubscription(config, topic->number(), first_sequence);
    }
    return std::make_shared<Subscription>(config, filter, next_subscription_++, first_sequence,
                                          timekeeper_, this);
  });
  if (!kept.ok()) {
    topic->Detach(subscription.get());
    return kept;
  }
  RETURN_IF_ERROR(Insert(config.name(), Attached{subscription, topic}, &subscriptions_));
  return Shown(*subscription, *topic);
}

absl::StatusOr<std::shared_ptr<Subscription>> Broker::FindSubscription(
    const std::string& name) const {
  ASSIGN_OR_RETURN(Attached attached, FindAttached(name));
  return std::move(attached.subscription);
}

absl::StatusOr<pb::Subscription> Broker::GetSubscription(
    const pb::GetSubscriptionRequest& request) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  return Shown(*attached.subscription, *attached.topic);
}

absl::StatusOr<pb::Subscription> Broker::UpdateSubscription(
    const pb::UpdateSubscriptionRequest& request) {
  std::scoped_lock changes(changes_);
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
  if (journal_ != nullptr) {
    RETURN_IF_ERROR(journal_->SaveSubscription(config, attached.topic->number(), 0));
  }
  attached.subscription->SetConfig(config);
  return Shown(*attached.subscription, *attached.topic);
}

absl::StatusOr<pb::ListSubscriptionsResponse> Broker::ListSubscriptions(
    const pb::ListSubscriptionsRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.project()));
  return ListPage(
      request, Copy(subscriptions_), request.project() + "/subscriptions/",
      [](const Attached& attached) { return Shown(*attached.subscription, *attached.topic); },
      &pb::ListSubscriptionsResponse::mutable_subscriptions);
}

absl::Status Broker::DeleteSubscription(const pb::DeleteSubscriptionRequest& request) {
  const std::string& name = request.subscription();
  std::scoped_lock changes(changes_);
  if (journal_ != nullptr) RETURN_IF_ERROR(journal_->ForgetSubscription(name));
  ASSIGN_OR_RETURN(const Attached attached, Remove(name, "subscriptions", &subscriptions_));
  attached.topic->Detach(attached.subscription.get());
  attached.subscription->Close(ResourceNotFound(name));
  return absl::OkStatus();
}

absl::Status Broker::DetachSubscription(const pb::DetachSubscriptionRequest& request) {
  std::scoped_lock changes(changes_);
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  pb::Subscription config = attached.subscription->Config();
  config.set_detached(true);
  if (journal_ != nullptr) {
    RETURN_IF_ERROR(journal_->SaveSubscription(config, attached.topic->number(), 0));
  }
  attached.topic->Detach(attached.subscription.get());
  attached.subscription->SetConfig(config);
  attached.subscription->Close(FailedPrecondition(
      "The subscription is detached from its topic (resource={}).", request.subscription()));
  return absl::OkStatus();
}

absl::Status Broker::ModifyPushConfig(const pb::ModifyPushConfigRequest& request) {
  RETURN_IF_ERROR(FindAttached(request.subscription()).status());
  if (request.push_config().ByteSizeLong() == 0) return absl::OkStatus();  // pull, as it is
  return absl::UnimplementedError("Push delivery is not implemented by this emulator.");
}

absl::Status Broker::KeepAcks(const std::string& name, const std::vector<uint64_t>& acked) {
  if (journal_ == nullptr || acked.empty()) return absl::OkStatus();
  return journal_->Acked(name, acked);
}

absl::Status Broker::KeepSeek(const std::string& name,
                              const std::function<std::vector<MessagePtr>()>& unacked) {
  return journal_ == nullptr ? absl::OkStatus() : journal_->Sought(name, unacked());
}

void Broker::WakeAll() {
  for (const auto& [name, attached] : Copy(subscriptions_)) attached.subscription->WakeAll();
}

}  // namespace lockstep::emulator
