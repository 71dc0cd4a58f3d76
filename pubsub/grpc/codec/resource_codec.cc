#include "pubsub/grpc/codec/resource_codec.h"

#include <google/protobuf/util/time_util.h>

namespace lockstep::pubsub::grpc_client {
namespace {

namespace v1 = google::pubsub::v1;
using google::protobuf::Duration;
using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

Millis FromProto(const Duration& duration) {
  return Millis(TimeUtil::DurationToMilliseconds(duration));
}

Duration ToProto(Millis duration) { return TimeUtil::MillisecondsToDuration(duration.count()); }

std::optional<Millis> IfAny(bool present, const Duration& duration) {
  return present ? std::optional(FromProto(duration)) : std::nullopt;
}

std::map<std::string, std::string> Labels(
    const google::protobuf::Map<std::string, std::string>& labels) {
  return {labels.begin(), labels.end()};
}

}  // namespace

WallTime FromProto(const Timestamp& time) {
  const std::chrono::nanoseconds since_epoch(TimeUtil::TimestampToNanoseconds(time));
  return WallTime(std::chrono::duration_cast<WallTime::duration>(since_epoch));
}

Timestamp ToProto(WallTime time) {
  const std::chrono::nanoseconds since_epoch = time.time_since_epoch();
  return TimeUtil::NanosecondsToTimestamp(since_epoch.count());
}

v1::Topic ToProto(const Topic& topic) {
  v1::Topic proto;
  proto.set_name(topic.name);
  proto.mutable_labels()->insert(topic.labels.begin(), topic.labels.end());
  if (topic.retention) *proto.mutable_message_retention_duration() = ToProto(*topic.retention);
  if (!topic.schema.schema.empty()) {
    auto& settings = *proto.mutable_schema_settings();
    settings.set_schema(topic.schema.schema);
    settings.set_encoding(topic.schema.encoding == SchemaSettings::Encoding::kJson ? v1::JSON
                                                                                   : v1::BINARY);
  }
  return proto;
}

v1::Subscription ToProto(const Subscription& subscription) {
  v1::Subscription proto;
  proto.set_name(subscription.name);
  proto.set_topic(subscription.topic);
  proto.set_ack_deadline_seconds(
      static_cast<int>(std::chrono::ceil<std::chrono::seconds>(subscription.ack_deadline).count()));
  proto.set_enable_message_ordering(subscription.ordering);
  proto.set_enable_exactly_once_delivery(subscription.exactly_once);
  proto.set_retain_acked_messages(subscription.retain_acked);
  *proto.mutable_message_retention_duration() = ToProto(subscription.retention);
  proto.set_filter(subscription.filter);
  if (!subscription.dead_letter_topic.empty()) {
    auto& policy = *proto.mutable_dead_letter_policy();
    policy.set_dead_letter_topic(subscription.dead_letter_topic);
    policy.set_max_delivery_attempts(subscription.max_delivery_attempts);
  }
  if (subscription.min_backoff) {
    *proto.mutable_retry_policy()->mutable_minimum_backoff() = ToProto(*subscription.min_backoff);
  }
  if (subscription.max_backoff) {
    *proto.mutable_retry_policy()->mutable_maximum_backoff() = ToProto(*subscription.max_backoff);
  }
  proto.mutable_labels()->insert(subscription.labels.begin(), subscription.labels.end());
  return proto;
}

v1::Schema ToProto(const Schema& schema) {
  v1::Schema proto;
  proto.set_name(schema.name);
  proto.set_type(v1::Schema::PROTOCOL_BUFFER);
  proto.set_definition(schema.definition);
  return proto;
}

Topic FromProto(const v1::Topic& proto) {
  const v1::SchemaSettings& schema = proto.schema_settings();
  return {
      .name = proto.name(),
      .labels = Labels(proto.labels()),
      .retention =
          IfAny(proto.has_message_retention_duration(), proto.message_retention_duration()),
      .schema = {.schema = schema.schema(),
                 .encoding = schema.encoding() == v1::JSON ? SchemaSettings::Encoding::kJson
                                                           : SchemaSettings::Encoding::kBinary}};
}

Subscription FromProto(const v1::Subscription& proto) {
  const v1::RetryPolicy& retry = proto.retry_policy();
  return {
      .name = proto.name(),
      .topic = proto.topic(),
      .ack_deadline = std::chrono::seconds(proto.ack_deadline_seconds()),
      .ordering = proto.enable_message_ordering(),
      .exactly_once = proto.enable_exactly_once_delivery(),
      .retain_acked = proto.retain_acked_messages(),
      .retention = IfAny(proto.has_message_retention_duration(), proto.message_retention_duration())
                       .value_or(Subscription().retention),
      .filter = proto.filter(),
      .dead_letter_topic = proto.dead_letter_policy().dead_letter_topic(),
      .max_delivery_attempts = proto.dead_letter_policy().max_delivery_attempts(),
      .min_backoff = IfAny(retry.has_minimum_backoff(), retry.minimum_backoff()),
      .max_backoff = IfAny(retry.has_maximum_backoff(), retry.maximum_backoff()),
      .topic_retention = IfAny(proto.has_topic_message_retention_duration(),
                               proto.topic_message_retention_duration()),
      .detached = proto.detached(),
      .labels = Labels(proto.labels())};
}

Snapshot FromProto(const v1::Snapshot& proto) {
  return {proto.name(), proto.topic(), FromProto(proto.expire_time()), Labels(proto.labels())};
}

Schema FromProto(const v1::Schema& proto) { return {proto.name(), proto.definition()}; }

}  // namespace lockstep::pubsub::grpc_client
