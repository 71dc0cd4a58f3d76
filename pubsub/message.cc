#include "pubsub/message.h"

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::pubsub {
namespace {

absl::Status CheckAttribute(const std::string& key, const std::string& value) {
  if (key.empty()) return InvalidArgument("an attribute has an empty key");
  if (key.size() > kMaxAttributeKeyBytes) {
    return InvalidArgument("an attribute's key has {} bytes, {} at most", key.size(),
                           kMaxAttributeKeyBytes);
  }
  if (!ValidUtf8(key)) return InvalidArgument("an attribute's key is not UTF-8");
  if (key.starts_with("goog") && !key.starts_with("googclient_")) {
    return InvalidArgument("attribute '{}': the prefix goog is Google's own, but for googclient_",
                           key);
  }
  if (value.size() > kMaxAttributeValueBytes) {
    return InvalidArgument("attribute '{}' has {} bytes, {} at most", key, value.size(),
                           kMaxAttributeValueBytes);
  }
  if (!ValidUtf8(value)) return InvalidArgument("attribute '{}' is not UTF-8", key);
  return absl::OkStatus();
}

}  // namespace

int64_t Message::ByteSize() const {
  auto size = static_cast<int64_t>(data.size() + ordering_key.size());
  for (const auto& [key, value] : attributes) {
    size += static_cast<int64_t>(key.size() + value.size());
  }
  return size;
}

absl::Status CheckLimits(const Message& message) {
  if (message.data.empty() && message.attributes.empty()) {
    return InvalidArgument("a message needs data or an attribute");
  }
  if (message.ByteSize() > kMaxMessageBytes) {
    return InvalidArgument("the message has {} bytes, {} at most", message.ByteSize(),
                           kMaxMessageBytes);
  }
  if (message.ordering_key.size() > kMaxOrderingKeyBytes) {
    return InvalidArgument("the ordering key has {} bytes, {} at most", message.ordering_key.size(),
                           kMaxOrderingKeyBytes);
  }
  if (!ValidUtf8(message.ordering_key)) return InvalidArgument("the ordering key is not UTF-8");
  if (message.attributes.size() > kMaxAttributes) {
    return InvalidArgument("the message has {} attributes, {} at most", message.attributes.size(),
                           kMaxAttributes);
  }
  for (const auto& [key, value] : message.attributes) {
    RETURN_IF_ERROR(CheckAttribute(key, value));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::pubsub
