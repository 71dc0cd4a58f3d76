#include "emulator/core/publish_rules.h"

#include "emulator/wire/field_rules.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::pubsub::v1::PublishRequest;
using google::pubsub::v1::PubsubMessage;

constexpr int kMaxMessages = 1000;
constexpr size_t kMaxRequestBytes = 10 << 20;
constexpr size_t kMaxAttributes = 100;
constexpr size_t kMaxAttributeKey = 256;
constexpr size_t kMaxAttributeValue = 1024;
constexpr size_t kMaxOrderingKey = 1024;

// RefuseUnknown would cost too much here.
absl::Status CheckUnknown(const google::protobuf::Message& proto) {
  if (proto.GetReflection()->GetUnknownFields(proto).empty()) return absl::OkStatus();
  return RefuseUnknown(proto);
}

absl::Status CheckMessage(const PubsubMessage& message) {
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
    if (key.empty() || key.size() > kMaxAttributeKey || key.compare(0, 4, "goog") == 0) {
      return InvalidArgument(
          "An attribute's key must have 1 to {} bytes and not begin with 'goog'; one has {}.",
          kMaxAttributeKey, key.size());
    }
    if (value.size() > kMaxAttributeValue) {
      return InvalidArgument("The attribute '{}' has {} bytes; {} are allowed.", key, value.size(),
                             kMaxAttributeValue);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPublish(const PublishRequest& request) {
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
  for (const PubsubMessage& message : request.messages()) RETURN_IF_ERROR(CheckMessage(message));
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
