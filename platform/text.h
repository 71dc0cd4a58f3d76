#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

std::string_view Trim(std::string_view text);
// The parts between `separator`s, trimmed, empty ones left out.
std::vector<std::string> SplitList(std::string_view text, char separator);

// The whole text as a number: no blanks, no plus. False when it is none, or beyond the type.
template <typename Number>
bool ParseWhole(std::string_view text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

bool ValidUtf8(std::string_view text);
// At most `bytes` bytes that Postgres takes as text: valid UTF-8 without NUL. A cut never falls
// inside a character; what is none becomes a question mark.
std::string Truncate(std::string_view text, size_t bytes);

// All of a file; or a sentence that names it and says why not (a folder is no file).
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace lockstep
