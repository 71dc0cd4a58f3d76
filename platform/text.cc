#include "platform/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "platform/status.h"

namespace lockstep {
namespace {

bool Ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

size_t LengthByLead(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if ((lead & 0xF0) == 0xE0) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Bytes of the character that `text` begins with; 0 when that is none.
size_t CharacterLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  const size_t length = LengthByLead(lead);
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = length > 1 ? at(1) : 0;
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  const bool none = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                    (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return none ? 0 : length;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string> SplitList(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (const std::string_view part = Trim(text.substr(0, end)); !part.empty()) {
      parts.emplace_back(part);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool ValidUtf8(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), Ascii)) return true;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Truncate(std::string_view text, size_t bytes) {
  std::string kept;
  kept.reserve(std::min(text.size(), bytes));
  while (!text.empty()) {
    const size_t length = text[0] == '\0' ? 0 : CharacterLength(text);
    const std::string_view next = length > 0 ? text.substr(0, length) : "?";
    if (kept.size() + next.size() > bytes) break;
    kept += next;
    text.remove_prefix(next.size());
  }
  return kept;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  // A stream opens a folder, and throws when it reads it.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return NotFound("{} can't be read: it is a folder", path);
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("{} can't be read: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace lockstep
