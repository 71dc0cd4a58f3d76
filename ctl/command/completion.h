#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/command/command.h"

namespace lockstep::ctl {

// The script that a shell (bash, zsh, fish) reads: it asks this program at every Tab, with
// `lockstepctl __complete WORD…`, so that it never knows less than --help.
absl::StatusOr<std::string> CompletionScript(const std::string& shell);

// What may stand in the place of the last word, each with its help behind a tab; ":files" = a
// file's name may. `words`: those behind the program's name.
std::vector<std::string> Complete(const CommandNode& program, std::span<const std::string> words);

}  // namespace lockstep::ctl
