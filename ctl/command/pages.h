#pragma once

#include "ctl/command/command.h"

namespace lockstep::ctl {

// `help`, `completion` and `man`: what lockstepctl says of all its commands.
// REQUIRES: `node` outlives the program's commands.
void AddPages(const Command& program, const CommandNode& node);

}  // namespace lockstep::ctl
