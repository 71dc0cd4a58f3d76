#include "emulator/core/ack_id.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep::emulator {
namespace {

// Takes as many hex digits as a number of this type has.
template <typename Number>
void TakeHex(std::string_view* text, Number* value) {
  constexpr size_t kDigits = 2 * sizeof(Number);
  std::from_chars(text->data(), text->data() + kDigits, *value, 16);
  text->remove_prefix(kDigits);
}

}  // namespace

void AckId::Write(char* out) const {
  fmt::format_to(out, "{:08x}{:016x}{:016x}{:08x}", subscription, sequence, lease, copy);
}

std::string AckId::Text() const {
  std::string text(kLength, '\0');
  Write(text.data());
  return text;
}

std::optional<AckId> AckId::Parse(std::string_view text) {
  if (text.size() != kLength) return std::nullopt;
  if (text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  AckId id;
  TakeHex(&text, &id.subscription);
  TakeHex(&text, &id.sequence);
  TakeHex(&text, &id.lease);
  TakeHex(&text, &id.copy);
  return id;
}

}  // namespace lockstep::emulator
