#pragma once

#include <map>
#include <string>
#include <vector>

#include "platform/config/config.h"

namespace lockstep {

// What a second reading of the configuration (SIGHUP) has found changed, told apart by whether a
// running process can follow. Keys by their path; values are masked where secret.
struct ReloadPlan {
  std::vector<ConfigKey> follow;
  std::vector<ConfigKey> restart;
};

// What can be followed was bound so (ConfigSection::Followed).
ReloadPlan PlanReload(const std::vector<ConfigKey>& running, const std::vector<ConfigKey>& fresh);

// The configuration that a process runs with, as it changes. Keys that need a restart keep the
// value they were started with.
struct RunningConfig {
  std::vector<ConfigKey> keys;
  std::map<std::string, std::string> after_restart;  // what the file wants of them; "" = gone

  // What the plan follows is the value from now on, what it does not waits for a restart.
  void Follow(const ReloadPlan& plan);
};

// A line in the log for each change, saying which are followed and which need a restart.
void LogReload(const ReloadPlan& plan);

}  // namespace lockstep
