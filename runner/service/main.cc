#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "platform/config/config.h"
#include "platform/daemon/reload.h"
#include "platform/daemon/signals.h"
#include "platform/log/log.h"
#include "platform/mutex_checks.h"
#include "platform/status.h"
#include "platform/version.h"
#include "runner/service/runner.h"

namespace {

constexpr auto kStopWithin = std::chrono::seconds(10);
constexpr auto kStopOnceWithin = std::chrono::seconds(1);  // what it waits for is away
constexpr int kFailed = 1;
constexpr int kGaveUp = 3;

// A statement that hangs must not hang the stop: what has not committed by then will come again.
class StopDeadline {
 public:
  StopDeadline(std::chrono::seconds within, int exit_code)
      : thread_([this, within, exit_code] {
          std::unique_lock lock(mu_);
          if (done_.wait_for(lock, within, [this] { return stopped_; })) return;
          lockstep::log::Error("not everything could be finished in time; it will come again");
          std::_Exit(exit_code);
        }) {}
  ~StopDeadline() {
    {
      std::lock_guard lock(mu_);
      stopped_ = true;
    }
    done_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mu_;
  std::condition_variable done_;
  bool stopped_ = false;
  std::thread thread_;
};

// What a running runner follows; the rest of a change needs a restart.
const std::vector<std::string> kFollowed = {"max_batch",
                                            "max_batch_bytes",
                                            "max_outstanding_messages",
                                            "max_outstanding_bytes",
                                            "linger",
                                            "max_attempts",
                                            "transient_tries",
                                            "inbox_retention",
                                            "force_inbox_retention",
                                            "log.level"};

void Reload(const lockstep::Config::Sources& sources, lockstep::RunningConfig& running,
            lockstep::runner::Runner& runner) {
  using namespace lockstep;
  runner::RunnerOptions fresh;
  std::vector<ConfigKey> keys;
  absl::Status read = Config::Read(
      sources, [&](ConfigSection& config) { Bind(config, fresh); }, &keys);
  if (read.ok()) read = fresh.Validate();
  if (!read.ok()) {
    log::Error("the configuration can't be read again; everything stays as it is",
               {{"error", read}});
    return;
  }
  log::SetLevel(fresh.log.level);
  const ReloadPlan plan = PlanReload(running.keys, keys, kFollowed);
  LogReload(plan);
  running.Follow(plan);
  runner.Reload(fresh, running);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  LeaveMutexesUnchecked();
  runner::RunnerOptions options;
  bool once = false;
  CommandLine command_line{
      .program = "lockstep-runner",
      .summary =
          "Takes events from Pub/Sub and, in one Postgres transaction each batch, records "
          "them in the inbox, writes the projections and saves the offset; then acks.",
      .bind = [&](ConfigSection& config) { Bind(config, options); },
      .switches = {{"--once", {&once, "work off what is there, then end"}}}};
  RunningConfig running;
  if (const auto exit_code = command_line.Parse(argc, argv, &running.keys)) return *exit_code;
  if (const absl::Status valid = options.Validate(); !valid.ok()) {
    fmt::print(stderr, "lockstep-runner: {}\n", MessageOf(valid));
    return 2;
  }
  log::Configure(options.log);
  Signals signals;
  std::string file = command_line.sources.file;
  if (!file.empty()) file = std::filesystem::absolute(file).string();
  runner::Runner runner(std::move(options), running, std::move(file));
  if (const absl::Status started = runner.Start(); !started.ok()) {
    fmt::print(stderr, "lockstep-runner: {}\n", MessageOf(started));
    return 1;
  }
  signals.OnReload([&] { Reload(command_line.sources, running, runner); });
  log::Info("lockstep-runner started", {{"version", kVersion}});
  absl::Status ended;
  if (once) {
    ended = runner.RunOnce(signals.stop_token());
  } else {
    signals.WaitForStop();
    log::Info("stopping: finishing what is in hand");
  }
  if (!ended.ok()) fmt::print(stderr, "lockstep-runner: {}\n", MessageOf(ended));
  const bool away = absl::IsUnavailable(ended);
  {
    const StopDeadline deadline(away ? kStopOnceWithin : kStopWithin,
                                ended.ok() ? kGaveUp : kFailed);
    signals.OnReload({});
    runner.Stop();
  }
  return ended.ok() ? 0 : kFailed;
}
