#include <cstdio>
#include <cstdlib>
#include <memory>

#include "emulator/service/server.h"
#include "platform/clock.h"
#include "platform/daemon/daemon.h"
#include "platform/status.h"
#include "pubsub/config.h"
#include "pubsub/provision/plan.h"

namespace lockstep::emulator {
namespace {

// A server whose clock is not that of its clients: it goes ahead of this machine's by `reach`, then
// behind by as much, once a minute. Publish times follow it (on a topic they never go back);
// leases, which go by the steady clock, don't.
class SwingingClock : public Clock {
 public:
  explicit SwingingClock(Millis reach) : reach_(reach) {}

  WallTime Now() const override {
    constexpr int64_t kHalf = 30'000;  // ms
    const WallTime now = System().Now();
    const int64_t at = now.time_since_epoch() / Millis(1) % (2 * kHalf);
    const int64_t rise = at < kHalf ? at : 2 * kHalf - at;  // 0 … kHalf … 0
    return now + reach_ * (2 * rise - kHalf) / kHalf;
  }
  SteadyTime Steady() const override { return System().Steady(); }

 private:
  const Millis reach_;
};

class EmulatorDaemon final : public Daemon {
 public:
  void Bind(ConfigSection& config) override {
    options_ = {.port = 8085};
    config.Key("host", &options_.host, "the address to listen on");
    config.Key("port", &options_.port, "the port to listen on; 0 takes a free one");
    config.Key("state", &options_.state,
               "a directory in which everything outlives the process; empty = in memory alone");
    config.Key("provision", &provision_,
               "a file that lists topics, subscriptions and schemas to be there at the start, as "
               "lockstepctl provision takes it");
    ConfigSection followed = config.Followed();
    emulator::Bind(followed, options_.faults);
    config.Key("fault-clock-swing", &clock_swing_,
               "how far its clock goes ahead and behind, once a minute");
  }
  absl::Status Validate() const override { return options_.faults.Validate(); }
  log::Options LogOptions() const override { return {.level = log::Level::kError}; }

  absl::Status Start(const Beginning&) override {
    // What goes wrong at start is ours to say, in one sentence.
    setenv("GRPC_VERBOSITY", "NONE", 0);
    clock_ = std::make_unique<SwingingClock>(clock_swing_);
    if (clock_swing_ > Millis(0)) options_.clock = clock_.get();
    server_ = std::make_unique<Server>(options_);
    RETURN_IF_ERROR(server_->Start());
    RETURN_IF_ERROR(Provision());
    std::printf("listening on %s\n", server_->address().c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }
  void Reload(const RunningConfig&) override { server_->faults().Set(options_.faults); }
  void Stop() override { server_->Stop(); }

 private:
  // Before the line that says where we listen: whoever has read it finds what the file lists.
  absl::Status Provision() {
    if (provision_.empty()) return absl::OkStatus();
    pubsub::PubsubOptions options;
    pubsub::Wanted wanted;
    RETURN_IF_ERROR(Config::Read({.file = provision_}, [&](ConfigSection& config) {
      config.Section("pubsub", [&](ConfigSection& section) { pubsub::Bind(section, options); });
      pubsub::Bind(config, wanted);
    }));
    wanted.project = options.project;
    ASSIGN_OR_RETURN(const auto ourselves,
                     pubsub::MakeTransport({.emulator_host = server_->address()}));
    ASSIGN_OR_RETURN(const pubsub::Plan plan, pubsub::MakePlan(wanted, ourselves->admin()));
    for (const pubsub::Step& step : plan.steps) {
      if (absl::Status done = step.run(ourselves->admin()); !done.ok()) {
        return MakeStatus(done.code(), "{}: can't {} {}: {}", provision_, step.action, step.what,
                          MessageOf(done));
      }
    }
    return absl::OkStatus();
  }

  Options options_;
  std::string provision_;
  Millis clock_swing_{0};
  std::unique_ptr<SwingingClock> clock_;
  std::unique_ptr<Server> server_;
};

}  // namespace
}  // namespace lockstep::emulator

int main(int argc, char** argv) {
  lockstep::emulator::EmulatorDaemon daemon;
  return lockstep::RunDaemon(
      argc, argv,
      {.program = "lockstep-emulator",
       .summary =
           "A Pub/Sub server in memory, for tests and development. It speaks google.pubsub.v1: "
           "point any client at it with PUBSUB_EMULATOR_HOST. With --state it keeps what it has "
           "over restarts. Ends on SIGINT or SIGTERM."},
      daemon);
}
