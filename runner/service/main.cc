#include <memory>
#include <utility>

#include "platform/daemon/daemon.h"
#include "platform/version.h"
#include "runner/service/runner.h"
#include "runner/service/runner_options.h"

namespace lockstep::runner {
namespace {

class RunnerDaemon final : public Daemon {
 public:
  void Bind(ConfigSection& config) override {
    options_ = {};
    runner::Bind(config, options_);
  }
  absl::Status Validate() const override { return options_.Validate(); }
  log::Options LogOptions() const override { return options_.log; }

  absl::Status Start(const Beginning& beginning) override {
    once_ = beginning.once;
    runner_ =
        std::make_unique<Runner>(std::move(options_), beginning.config, beginning.config_file);
    const absl::Status started = runner_->Start();
    if (started.ok()) log::Info("lockstep-runner started", {{"version", BuildText()}});
    return started;
  }
  absl::Status RunOnce(const std::stop_token& stop) override { return runner_->RunOnce(stop); }
  // 4: all is worked off, and something waits for a decision.
  int ExitCode(const absl::Status& ended) const override { return absl::IsDataLoss(ended) ? 4 : 1; }
  void Reload(const RunningConfig& config) override { runner_->Reload(options_, config); }

  bool Alive() const override { return runner_->Alive(); }

  void Stop() override {
    if (!once_) log::Info("stopping: finishing what is in hand");
    runner_->Stop();
  }
  Millis StopWithin(const absl::Status& ended) const override {
    // What it would wait for is away.
    return absl::IsUnavailable(ended) ? Millis(1'000) : Daemon::StopWithin(ended);
  }

 private:
  RunnerOptions options_;  // read last
  std::unique_ptr<Runner> runner_;
  bool once_ = false;
};

}  // namespace
}  // namespace lockstep::runner

int main(int argc, char** argv) {
  lockstep::runner::RunnerDaemon daemon;
  return lockstep::RunDaemon(
      argc, argv,
      {.program = "lockstep-runner",
       .summary =
           "Takes events from Pub/Sub and, in one Postgres transaction each batch, records them in "
           "the inbox, writes the projections and saves the offset; then acks.",
       .once = "work off what is there, then end"},
      daemon);
}
