#include "emulator/core/ack_id.h"

namespace lockstep::emulator {
namespace {

char* PutHex(uint64_t value, int digits, char* out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    *out++ = "0123456789abcdef"[value >> shift & 15];
  }
  return out;
}

bool TakeHex(std::string_view* text, int digits, uint64_t* value) {
  *value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = (*text)[static_cast<size_t>(i)];
    if (c >= '0' && c <= '9') {
      *value = *value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      *value = *value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  text->remove_prefix(static_cast<size_t>(digits));
  return true;
}

}  // namespace

void AckId::Write(char* out) const {
  out = PutHex(subscription, 8, out);
  out = PutHex(sequence, 16, out);
  out = PutHex(lease, 16, out);
  PutHex(copy, 8, out);
}

std::string AckId::Text() const {
  std::string text(kLength, '\0');
  Write(text.data());
  return text;
}

std::optional<AckId> AckId::Parse(std::string_view text) {
  if (text.size() != kLength) return std::nullopt;
  AckId id;
  uint64_t subscription = 0;
  uint64_t copy = 0;
  if (!TakeHex(&text, 8, &subscription) || !TakeHex(&text, 16, &id.sequence) ||
      !TakeHex(&text, 16, &id.lease) || !TakeHex(&text, 8, &copy)) {
    return std::nullopt;
  }
  id.subscription = static_cast<uint32_t>(subscription);
  id.copy = static_cast<uint32_t>(copy);
  return id;
}

}  // namespace lockstep::emulator
