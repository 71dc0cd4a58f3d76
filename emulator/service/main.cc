#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "emulator/faults/swinging_clock.h"
#include "emulator/service/server.h"
#include "platform/config/config.h"
#include "platform/mutex_checks.h"
#include "platform/status.h"

// Blocks SIGINT and SIGTERM in every thread of the process, so that main can wait for them.
static sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int main(int argc, char** argv) {
  lockstep::LeaveMutexesUnchecked();
  lockstep::emulator::Options options;
  options.port = 8085;
  lockstep::Millis clock_swing{0};
  lockstep::CommandLine command_line;
  command_line.program = "lockstep-emulator";
  command_line.summary =
      "A Pub/Sub server in memory, for tests and development. It speaks google.pubsub.v1: point "
      "any "
      "client at it with PUBSUB_EMULATOR_HOST. Ends on SIGINT or SIGTERM.";
  command_line.bind = [&options, &clock_swing](lockstep::ConfigSection& config) {
    config.Key("host", &options.host, "the address to listen on");
    config.Key("port", &options.port, "the port to listen on; 0 takes a free one");
    lockstep::emulator::Bind(config, options.faults);
    config.Key("fault-clock-swing", &clock_swing,
               "how far its clock goes ahead and behind, once a minute");
  };
  if (const auto code = command_line.Parse(argc, argv)) return *code;

  setenv("GRPC_VERBOSITY", "NONE", 0);  // what goes wrong at start is ours to say, in one sentence
  const sigset_t stop_signals = BlockStopSignals();
  const lockstep::emulator::SwingingClock clock(clock_swing);
  if (clock_swing > lockstep::Millis(0)) options.clock = &clock;
  lockstep::emulator::Server server(options);
  if (const absl::Status started = server.Start(); !started.ok()) {
    std::fprintf(stderr, "lockstep-emulator: %s\n",
                 std::string(lockstep::MessageOf(started)).c_str());
    return 1;
  }
  std::printf("listening on %s\n", server.address().c_str());
  std::fflush(stdout);
  int received = 0;
  sigwait(&stop_signals, &received);
  server.Stop();
  return 0;
}
