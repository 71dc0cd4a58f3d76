#include "platform/daemon/daemon.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "platform/daemon/service_manager.h"
#include "platform/daemon/service_thread.h"
#include "platform/daemon/signals.h"
#include "platform/mutex_checks.h"
#include "platform/printable.h"
#include "platform/status.h"

namespace lockstep {
namespace {

constexpr int kFailed = 1;

void Reload(const Config::Sources& sources, RunningConfig& running, Daemon& daemon) {
  std::vector<ConfigKey> keys;
  absl::Status read = Config::Read(
      sources, [&](ConfigSection& config) { daemon.Bind(config); }, &keys);
  if (read.ok()) read = daemon.Validate();
  if (!read.ok()) {
    log::Error("the configuration can't be read again; everything stays as it is",
               {{"error", read}});
    return;
  }
  log::SetLevel(daemon.LogOptions().level);
  running.Follow(keys);
  daemon.Reload(running);
}

// Says that the process lives, three times as often as is asked for, for as long as it does.
std::unique_ptr<Ticker> Watchdog(const ServiceManager& manager, const Daemon& daemon) {
  auto ticker = std::make_unique<Ticker>(manager.watchdog() / 3, [&] {
    if (daemon.Alive()) manager.Alive();
  });
  // That it can't be started means that nobody hears it.
  if (manager.watchdog() > Millis(0)) ticker->Start().IgnoreError();
  return ticker;
}

}  // namespace

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

int RunDaemon(int argc, char** argv, const Daemon::About& about, Daemon& daemon) {
  LeaveMutexesUnchecked();
  Signals signals(daemon.StopWithin(absl::OkStatus()));  // before any other thread
  Daemon::Beginning beginning;
  CommandLine line{.program = about.program,
                   .summary = about.summary,
                   .bind = [&](ConfigSection& config) { daemon.Bind(config); }};
  if (!about.once.empty()) line.switches["--once"] = {&beginning.once, about.once};
  if (const auto code = line.Parse(argc, argv, &beginning.config.keys)) return *code;
  const auto complain = [&](const absl::Status& status) {
    if (!status.ok())
      fmt::print(stderr, "{}: {}\n", about.program, Printable(MessageOf(status), true));
    return !status.ok();
  };
  if (complain(daemon.Validate())) return about.invalid;
  log::Configure(daemon.LogOptions());
  if (const std::string& file = line.sources.file; !file.empty()) {
    beginning.config_file = std::filesystem::absolute(file).string();
  }
  if (complain(daemon.Start(beginning))) return kFailed;
  const ServiceManager manager;
  manager.Ready();
  const std::unique_ptr<Ticker> watchdog = Watchdog(manager, daemon);
  signals.OnReload([&] {
    if (!about.reloads) return signals.RequestStop();
    manager.Reloading();
    Reload(line.sources, beginning.config, daemon);
    manager.Ready();
  });
  absl::Status ended;
  if (beginning.once) {
    ended = daemon.RunOnce(signals.stop_token());
  } else {
    signals.WaitForStop();
  }
  const bool failed = complain(ended);
  const Millis within = daemon.StopWithin(ended);
  // Who was told to stop has the signal's own deadline beside this one, and both say the same.
  const bool told = signals.stop_token().stop_requested();
  const int code = failed && !told ? kFailed : Signals::kGaveUp;
  const std::jthread deadline(
      [within, code](const std::stop_token& stopped) { EndUnlessDone(stopped, within, code); });
  signals.OnReload({});
  manager.Stopping();
  watchdog->Stop();
  daemon.Stop();
  return failed ? daemon.ExitCode(ended) : 0;
}

}  // namespace lockstep
