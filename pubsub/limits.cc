#include "pubsub/limits.h"

#include <string_view>

#include "platform/status.h"

namespace lockstep::pubsub {
namespace {

bool PlainAscii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

int Trailing(unsigned char lead) {
  if (lead < 0x80) return 0;
  if (lead >= 0xC2 && lead <= 0xDF) return 1;
  if ((lead & 0xF0) == 0xE0) return 2;
  if (lead >= 0xF0 && lead <= 0xF4) return 3;
  return -1;
}

bool ValidUtf8(std::string_view text) {
  if (PlainAscii(text)) return true;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int trailing = Trailing(lead);
    if (trailing < 0 || i + static_cast<size_t>(trailing) >= text.size()) return false;
    for (int k = 1; k <= trailing; ++k) {
      if ((static_cast<unsigned char>(text[i + static_cast<size_t>(k)]) & 0xC0) != 0x80) {
        return false;
      }
    }
    const auto second = static_cast<unsigned char>(trailing > 0 ? text[i + 1] : 0);
    // Overlong forms, surrogates, and what lies past U+10FFFF.
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += static_cast<size_t>(trailing) + 1;
  }
  return true;
}

absl::Status CheckAttribute(const std::string& key, const std::string& value) {
  if (key.empty()) return InvalidArgument("an attribute has an empty key");
  if (key.size() > kMaxAttributeKeyBytes) {
    return InvalidArgument("an attribute's key has {} bytes, {} at most", key.size(),
                           kMaxAttributeKeyBytes);
  }
  if (!ValidUtf8(key)) return InvalidArgument("an attribute's key is not UTF-8");
  if (key.compare(0, 4, "goog") == 0) {
    return InvalidArgument("attribute '{}': the prefix goog is Google's own", key);
  }
  if (value.size() > kMaxAttributeValueBytes) {
    return InvalidArgument("attribute '{}' has {} bytes, {} at most", key, value.size(),
                           kMaxAttributeValueBytes);
  }
  if (!ValidUtf8(value)) return InvalidArgument("attribute '{}' is not UTF-8", key);
  return absl::OkStatus();
}

}  // namespace

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
