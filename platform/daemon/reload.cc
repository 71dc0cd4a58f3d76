#include "platform/daemon/reload.h"

#include "platform/log/log.h"

namespace lockstep {

void RunningConfig::Follow(const std::vector<ConfigKey>& fresh) {
  std::map<std::string, ConfigKey*> before;
  for (ConfigKey& key : keys) before[key.path] = &key;
  after_restart.clear();
  bool changed = false;
  const auto wait = [&](const std::string& path, const std::string& value) {
    log::Warning("configuration changed; this needs a restart", {{"key", path}, {"value", value}});
    after_restart[path] = value;
    changed = true;
  };
  for (const ConfigKey& key : fresh) {
    const auto found = before.extract(key.path);
    if (found && found.mapped()->value == key.value) continue;
    if (!key.followed) {
      wait(key.path, key.value);
      continue;
    }
    log::Info("configuration changed; followed from the next round on",
              {{"key", key.path}, {"value", key.value}});
    if (found) found.mapped()->value = key.value;
    changed = true;
  }
  for (const auto& [path, gone] : before) wait(path, "");
  if (!changed) log::Info("configuration read; nothing changed");
}

}  // namespace lockstep
