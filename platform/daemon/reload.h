#pragma once

#include <map>
#include <string>
#include <vector>

#include "platform/config/config.h"

namespace lockstep {

// The configuration that a process runs with, as it changes. Keys that need a restart keep the
// value they were started with. Values are masked where secret.
struct RunningConfig {
  std::vector<ConfigKey> keys;
  std::map<std::string, std::string> after_restart;  // what the file wants of them; "" = gone

  // Takes over a second reading of the configuration (SIGHUP) as far as a running process can
  // follow (ConfigSection::Followed); the rest waits for a restart. Each change is logged.
  void Follow(const std::vector<ConfigKey>& fresh);
};

}  // namespace lockstep
