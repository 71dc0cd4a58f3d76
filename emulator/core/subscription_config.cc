#include "emulator/core/subscription_config.h"

#include <algorithm>

#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::pubsub::v1::Subscription;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int kDefaultAckDeadline = 10;
constexpr int kDefaultAttempts = 5;

absl::Status CheckDuration(std::string_view what, const google::protobuf::Duration& duration,
                           Millis least, Millis most) {
  const Millis value = FromProto(duration);
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("Invalid {}: {} is not within {} and {}.", what, FormatDuration(value),
                         FormatDuration(least), FormatDuration(most));
}

absl::Status CheckDeadLetters(Subscription* config) {
  if (!config->has_dead_letter_policy()) return absl::OkStatus();
  auto* policy = config->mutable_dead_letter_policy();
  RETURN_IF_ERROR(ResourceName::Parse(policy->dead_letter_topic(), "topics").status());
  if (policy->max_delivery_attempts() == 0) policy->set_max_delivery_attempts(kDefaultAttempts);
  if (policy->max_delivery_attempts() < 5 || policy->max_delivery_attempts() > 100) {
    return InvalidArgument("Invalid max_delivery_attempts: {} is not within 5 and 100.",
                           policy->max_delivery_attempts());
  }
  return absl::OkStatus();
}

absl::Status CheckRetry(Subscription* config) {
  if (!config->has_retry_policy()) return absl::OkStatus();
  auto* policy = config->mutable_retry_policy();
  if (!policy->has_minimum_backoff()) *policy->mutable_minimum_backoff() = ToProto(seconds(10));
  if (!policy->has_maximum_backoff()) *policy->mutable_maximum_backoff() = ToProto(minutes(10));
  RETURN_IF_ERROR(
      CheckDuration("minimum_backoff", policy->minimum_backoff(), seconds(0), minutes(10)));
  RETURN_IF_ERROR(
      CheckDuration("maximum_backoff", policy->maximum_backoff(), seconds(0), minutes(10)));
  if (FromProto(policy->minimum_backoff()) > FromProto(policy->maximum_backoff())) {
    return InvalidArgument("Invalid retry policy: minimum_backoff is above maximum_backoff.");
  }
  return absl::OkStatus();
}

absl::Status CheckExpiration(Subscription* config) {
  if (!config->has_expiration_policy()) {
    *config->mutable_expiration_policy()->mutable_ttl() = ToProto(hours(31 * 24));
  }
  if (!config->expiration_policy().has_ttl()) return absl::OkStatus();  // never
  const Millis ttl = FromProto(config->expiration_policy().ttl());
  if (ttl < hours(24)) {
    return InvalidArgument("Invalid expiration_policy: a ttl is 24h at least, not {}.",
                           FormatDuration(ttl));
  }
  if (ttl < FromProto(config->message_retention_duration())) {
    return InvalidArgument(
        "Invalid expiration_policy: the ttl {} is below message_retention_duration.",
        FormatDuration(ttl));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseUnsupportedSubscription(const Subscription& config) {
  return RefuseUnsupported(
      config,
      {"name", "topic", "ack_deadline_seconds", "retain_acked_messages",
       "message_retention_duration", "labels", "enable_message_ordering", "expiration_policy",
       "filter", "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery",
       // Output only: the service ignores them in a request.
       "detached", "topic_message_retention_duration", "state"});
}

absl::Status CheckSubscription(Subscription* config) {
  RETURN_IF_ERROR(RefuseUnsupportedSubscription(*config));
  RETURN_IF_ERROR(CheckLabels(config->labels()));
  if (config->ack_deadline_seconds() == 0) config->set_ack_deadline_seconds(kDefaultAckDeadline);
  if (config->ack_deadline_seconds() < 10 || config->ack_deadline_seconds() > 600) {
    return InvalidArgument("Invalid ack deadline: {} s is not within 10 and 600.",
                           config->ack_deadline_seconds());
  }
  if (!config->has_message_retention_duration()) {
    *config->mutable_message_retention_duration() = ToProto(hours(7 * 24));
  }
  RETURN_IF_ERROR(CheckDuration("message_retention_duration", config->message_retention_duration(),
                                minutes(10), hours(31 * 24)));
  RETURN_IF_ERROR(CheckExpiration(config));
  RETURN_IF_ERROR(CheckDeadLetters(config));
  RETURN_IF_ERROR(CheckRetry(config));
  config->clear_push_config();
  config->set_state(Subscription::ACTIVE);
  return absl::OkStatus();
}

DeliveryPolicy PolicyOf(const Subscription& config, Millis topic_retention) {
  DeliveryPolicy policy;
  policy.ordered = config.enable_message_ordering();
  policy.exactly_once = config.enable_exactly_once_delivery();
  policy.retain_acked = config.retain_acked_messages();
  policy.retention = std::max(FromProto(config.message_retention_duration()), topic_retention);
  if (config.has_retry_policy()) {
    policy.min_backoff = FromProto(config.retry_policy().minimum_backoff());
    policy.max_backoff = FromProto(config.retry_policy().maximum_backoff());
  }
  if (config.has_dead_letter_policy()) {
    policy.max_attempts = config.dead_letter_policy().max_delivery_attempts();
  }
  return policy;
}

Millis TimeToLiveOf(const Subscription& config) {
  return FromProto(config.expiration_policy().ttl());
}

}  // namespace lockstep::emulator
