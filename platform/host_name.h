#pragma once

#include <unistd.h>

#include <string>

namespace lockstep {

// This machine's name.
inline std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace lockstep
