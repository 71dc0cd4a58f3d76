#pragma once

#include <string>

namespace lockstep::ctl {

// Who runs this command, for the audit; and with the program's name.
std::string OperatorName();
std::string OperatorOfThis();
std::string OperatorAtHost();  // as the audit of an outbox has it

}  // namespace lockstep::ctl
