#include <utility>

#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "platform/duration.h"

namespace lockstep::emulator {
namespace {

constexpr int kMaxMessages = 1000;
constexpr size_t kMaxRequestBytes = 10 << 20;
constexpr size_t kMaxAttributes = 100;
constexpr size_t kMaxAttributeKey = 256;
constexpr size_t kMaxAttributeValue = 1024;
constexpr size_t kMaxOrderingKey = 1024;

// Google's clients add attributes of their own, for tracing and schemas.
bool IsReserved(std::string_view key) {
  return key.starts_with("goog") && !key.starts_with("googclient_");
}

// RefuseUnknown would cost too much here.
absl::Status CheckUnknown(const google::protobuf::Message& proto) {
  if (proto.GetReflection()->GetUnknownFields(proto).empty()) return absl::OkStatus();
  return RefuseUnknown(proto);
}

absl::Status CheckMessage(const pb::PubsubMessage& message) {
  RETURN_IF_ERROR(CheckUnknown(message));
  if (message.data().empty() && message.attributes().empty()) {
    return InvalidArgument("Some messages have neither data nor attributes.");
  }
  if (message.ordering_key().size() > kMaxOrderingKey) {
    return InvalidArgument("An ordering key has {} bytes; {} are allowed.",
                           message.ordering_key().size(), kMaxOrderingKey);
  }
  if (message.attributes().size() > kMaxAttributes) {
    return InvalidArgument("A message has {} attributes; {} are allowed.",
                           message.attributes().size(), kMaxAttributes);
  }
  for (const auto& [key, value] : message.attributes()) {
    if (key.empty() || key.size() > kMaxAttributeKey || IsReserved(key)) {
      return InvalidArgument(
          "An attribute's key must have 1 to {} bytes and not begin with 'goog' (but for "
          "'googclient_'); one has {}.",
          kMaxAttributeKey, key.size());
    }
    if (value.size() > kMaxAttributeValue) {
      return InvalidArgument("The attribute '{}' has {} bytes; {} are allowed.", key, value.size(),
                             kMaxAttributeValue);
    }
  }
  return absl::OkStatus();
}

// The service's limits on what is published: INVALID_ARGUMENT names the first that is exceeded.
absl::Status CheckPublish(const pb::PublishRequest& request) {
  if (request.messages().empty()) return InvalidArgument("The request holds no messages.");
  if (request.messages_size() > kMaxMessages) {
    return InvalidArgument("The request holds {} messages; {} are allowed.",
                           request.messages_size(), kMaxMessages);
  }
  if (const size_t size = request.ByteSizeLong(); size > kMaxRequestBytes) {
    return InvalidArgument("Request payload size exceeds the limit: {} of {} bytes.", size,
                           kMaxRequestBytes);
  }
  RETURN_IF_ERROR(CheckUnknown(request));
  for (const auto& message : request.messages()) RETURN_IF_ERROR(CheckMessage(message));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<pb::PublishResponse> Broker::Publish(const pb::PublishRequest& request,
                                                    Subscription::Wakes* wakes) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic()));
  RETURN_IF_ERROR(CheckPublish(request));
  std::vector<std::shared_ptr<Message>> messages;
  messages.reserve(static_cast<size_t>(request.messages_size()));
  for (const auto& message : request.messages()) messages.push_back(MakeMessage(message));
  if (const auto settings = topic->Schema()) {
    ASSIGN_OR_RETURN(const auto revisions, schemas_->FindRevisions(*settings, request));
    for (size_t i = 0; i < messages.size(); ++i) {
      AddAttributes({{"googclient_schemaname", settings->schema()},
                     {"googclient_schemaencoding", pb::Encoding_Name(settings->encoding())},
                     {"googclient_schemarevisionid", revisions[i]}},
                    messages[i].get());
    }
  }
  ASSIGN_OR_RETURN(auto ids, topic->Publish(std::move(messages), wakes));
  pb::PublishResponse response;
  response.mutable_message_ids()->Add(std::make_move_iterator(ids.begin()),
                                      std::make_move_iterator(ids.end()));
  return response;
}

void Broker::Forward(const std::string& subscription, const std::string& topic,
                     const std::vector<DeadLetter>& letters) {
  const auto found = FindTopic(topic);
  const auto source = ResourceName::Parse(subscription, "subscriptions");
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
  Subscription::Wakes wakes;
  if (!(*found)->Publish(std::move(messages), &wakes).ok()) return;  // unacked in the journal, too
  std::vector<uint64_t> forwarded;
  for (const DeadLetter& letter : letters) forwarded.push_back(letter.message->sequence);
  (void)KeepAcks(subscription, forwarded);  // not kept: after a restart it dies again
  for (const auto& wakeable : wakes) wakeable->Wake();
}

}  // namespace lockstep::emulator
