#include "ctl/command/operator.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "platform/host_name.h"

namespace lockstep::ctl {

std::string OperatorAtHost() { return fmt::format("{}@{}", OperatorName(), HostName()); }

std::string OperatorOfThis() { return fmt::format("{} (lockstepctl)", OperatorName()); }

std::string OperatorName() {
  for (const char* name : {"LOCKSTEP_OPERATOR", "USER", "LOGNAME"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : "unknown";
}

}  // namespace lockstep::ctl
