#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

absl::Status CheckDeadLetters(pb::Subscription* config) {
  if (!config->has_dead_letter_policy()) return absl::OkStatus();
  auto* policy = config->mutable_dead_letter_policy();
  RETURN_IF_ERROR(ResourceName::Parse(policy->dead_letter_topic(), "topics").status());
  if (policy->max_delivery_attempts() == 0) policy->set_max_delivery_attempts(5);
  return CheckRange("max_delivery_attempts", policy->max_delivery_attempts(), 5, 100);
}

absl::Status CheckRetry(pb::Subscription* config) {
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

absl::Status CheckExpiration(pb::Subscription* config) {
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

// Against the service's bounds; fills in its defaults.
absl::Status Broker::CheckSubscription(pb::Subscription* config) const {
  RETURN_IF_ERROR(CheckLabels(config->labels()));
  if (config->ack_deadline_seconds() == 0) config->set_ack_deadline_seconds(10);
  RETURN_IF_ERROR(CheckRange("ack deadline", config->ack_deadline_seconds(), 10, 600, " s"));
  if (!config->has_message_retention_duration()) {
    *config->mutable_message_retention_duration() = ToProto(hours(7 * 24));
  }
  RETURN_IF_ERROR(CheckDuration("message_retention_duration", config->message_retention_duration(),
                                minutes(10), hours(31 * 24)));
  RETURN_IF_ERROR(CheckExpiration(config));
  RETURN_IF_ERROR(CheckDeadLetters(config));
  RETURN_IF_ERROR(CheckRetry(config));
  config->mutable_push_config()->Clear();  // there, and empty: pull
  config->set_state(pb::Subscription::ACTIVE);
  if (!config->has_dead_letter_policy()) return absl::OkStatus();
  return FindTopic(config->dead_letter_policy().dead_letter_topic()).status();
}

}  // namespace lockstep::emulator
