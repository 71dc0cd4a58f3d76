#include "platform/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "platform/status.h"

namespace lockstep {

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
