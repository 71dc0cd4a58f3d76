#include "platform/daemon/reload.h"

#include <map>

#include "platform/log/log.h"

namespace lockstep {
ReloadPlan PlanReload(const std::vector<ConfigKey>& running, const std::vector<ConfigKey>& fresh) {
  std::map<std::string, std::string> before;
  for (const ConfigKey& key : running) before[key.path] = key.value;
  ReloadPlan plan;
  for (const ConfigKey& key : fresh) {
    const auto found = before.find(key.path);
    if (found == before.end() || found->second != key.value) {
      (key.followed ? plan.follow : plan.restart).push_back(key);
    }
    if (found != before.end()) before.erase(found);
  }
  for (const auto& [path, value] : before) plan.restart.push_back({.path = path});  // it is gone
  return plan;
}

void RunningConfig::Follow(const ReloadPlan& plan) {
  for (const ConfigKey& followed : plan.follow) {
    for (ConfigKey& key : keys) {
      if (key.path == followed.path) key.value = followed.value;
    }
  }
  after_restart.clear();
  for (const ConfigKey& key : plan.restart) after_restart[key.path] = key.value;
}

void LogReload(const ReloadPlan& plan) {
  for (const ConfigKey& key : plan.follow) {
    log::Info("configuration changed; followed from the next round on",
              {{"key", key.path}, {"value", key.value}});
  }
  for (const ConfigKey& key : plan.restart) {
    log::Warning("configuration changed; this needs a restart",
                 {{"key", key.path}, {"value", key.value}});
  }
  if (plan.follow.empty() && plan.restart.empty()) log::Info("configuration read; nothing changed");
}

}  // namespace lockstep
