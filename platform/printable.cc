#include "platform/printable.h"

#include <fmt/format.h>

#include <iterator>

#include "platform/text.h"

namespace lockstep {
namespace {

// The length of the character that `text` begins with, and its code point; 0 when that is none.
size_t Decode(std::string_view text, char32_t* point) {
  for (size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    if (!ValidUtf8(text.substr(0, length))) continue;
    const auto lead = static_cast<unsigned char>(text[0]);
    *point = length == 1 ? lead : lead & (0x7FU >> length);
    for (size_t i = 1; i < length; ++i) *point = *point << 6U | (text[i] & 0x3FU);
    return length;
  }
  return 0;
}

bool Harmless(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  const bool control = c < 0x20 || in(0x7F, 0x9F);
  const bool line = in(0x2028, 0x2029);
  const bool direction =
      c == 0x061C || in(0x200E, 0x200F) || in(0x202A, 0x202E) || in(0x2066, 0x2069);
  return !control && !line && !direction;
}

}  // namespace

std::string Printable(std::string_view text, bool keep_lines) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    char32_t point = 0;
    const size_t length = Decode(text, &point);
    if (length == 0) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (Harmless(point) || (point == '\n' && keep_lines)) {
      shown += text.substr(0, length);
    } else if (point == '\n') {
      shown += "\\n";
    } else {
      fmt::format_to(std::back_inserter(shown), "\\u{:04x}", static_cast<uint32_t>(point));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return shown;
}

}  // namespace lockstep
