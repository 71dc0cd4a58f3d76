#pragma once

#include <cstdio>
#include <string>

#include "ctl/command/command.h"

// What a command says of itself, for the terminal and as a man page: both of one description.
namespace lockstep::ctl {

// "--limit N", "--state dead|quarantined", "FILE"
std::string OptionText(const Option& option);
// What stands behind the help: " [required]", " [50]".
std::string OptionNote(const Option& option);
// "lockstepctl outbox list [OPTIONS] [table]"
std::string UsageText(const CommandNode& command);

// As wide as the terminal, with colour where there is some.
std::string HelpText(const CommandNode& command, std::FILE* to);

// A page of section 1 for the command and all below it.
std::string ManPage(const CommandNode& command);

}  // namespace lockstep::ctl
