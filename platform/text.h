#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

std::string_view Trim(std::string_view text);
// The parts between `separator`s, trimmed, empty ones left out.
std::vector<std::string> SplitList(std::string_view text, char separator);

bool ValidUtf8(std::string_view text);
// At most `bytes` bytes that Postgres takes as text: valid UTF-8 without NUL. A cut never falls
// inside a character; what is none becomes a question mark.
std::string Truncate(std::string_view text, size_t bytes);

// All of a file; or a sentence that names it and says why not (a folder is no file).
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace lockstep
