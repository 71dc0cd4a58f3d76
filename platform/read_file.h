#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// All of a file; or a sentence that names it and says why not (a folder is no file).
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace lockstep
