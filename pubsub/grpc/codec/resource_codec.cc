#include "pubsub/grpc/codec/resource_codec.h"

#include "pubsub/grpc/codec/wire_time.h"

namespace lockstep::pubsub::grpc_client {
namespace {

namespace v1 = google::pubsub::v1;

std::map<std::string, std::string> Labels(
    const google::protobuf::Map<std::string, std::string>& labels) {
  return {labels.begin(), labels.end()};
}

}  // namespace

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
  if (subscription.min_backoff || subscription.max_backoff) {
    auto& policy = *proto.mutable_retry_policy();
    if (subscription.min_backoff) {
      *policy.mutable_minimum_backoff() = ToProto(*subscription.min_backoff);
    }
    if (subscription.max_backoff) {
      *policy.mutable_maximum_backoff() = ToProto(*subscription.max_backoff);
    }
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
  Topic topic;
  topic.name = proto.name();
  topic.labels = Labels(proto.labels());
  if (proto.has_message_retention_duration()) {
    topic.retention = FromProto(proto.message_retention_duration());
  }
  topic.schema.schema = proto.schema_settings().schema();
  if (proto.schema_settings().encoding() == v1::JSON) {
    topic.schema.encoding = SchemaSettings::Encoding::kJson;
  }
  return topic;
}

Subscription FromProto(const v1::Subscription& proto) {
  Subscription subscription;
  subscription.name = proto.name();
  subscription.topic = proto.topic();
  subscription.ack_deadline = std::chrono::seconds(proto.ack_deadline_seconds());
  subscription.ordering = proto.enable_message_ordering();
  subscription.exactly_once = proto.enable_exactly_once_delivery();
  subscription.retain_acked = proto.retain_acked_messages();
  if (proto.has_message_retention_duration()) {
    subscription.retention = FromProto(proto.message_retention_duration());
  }
  subscription.filter = proto.filter();
  subscription.dead_letter_topic = proto.dead_letter_policy().dead_letter_topic();
  subscription.max_delivery_attempts = proto.dead_letter_policy().max_delivery_attempts();
  if (proto.retry_policy().has_minimum_backoff()) {
    subscription.min_backoff = FromProto(proto.retry_policy().minimum_backoff());
  }
  if (proto.retry_policy().has_maximum_backoff()) {
    subscription.max_backoff = FromProto(proto.retry_policy().maximum_backoff());
  }
  if (proto.has_topic_message_retention_duration()) {
    subscription.topic_retention = FromProto(proto.topic_message_retention_duration());
  }
  subscription.detached = proto.detached();
  subscription.labels = Labels(proto.labels());
  return subscription;
}

Snapshot FromProto(const v1::Snapshot& proto) {
  return {proto.name(), proto.topic(), FromProto(proto.expire_time()), Labels(proto.labels())};
}

Schema FromProto(const v1::Schema& proto) { return {proto.name(), proto.definition()}; }

}  // namespace lockstep::pubsub::grpc_client
