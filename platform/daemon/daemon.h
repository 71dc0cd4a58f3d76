#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/config/config.h"
#include "platform/log/log.h"

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

// A program that runs until it is told to stop. RunDaemon drives it; everything is called on main's
// thread, Reload with the reading before it on the signal thread, Alive on one of its own.
class Daemon {
 public:
  struct About {
    std::string program;
    std::string summary;  // one paragraph for --help
    std::string once;     // what --once does, for --help; empty = there is no such switch
    int invalid = 2;      // the exit code for options that Validate refuses
    bool reloads = true;  // on SIGHUP; false = that ends it
  };
  struct Beginning {
    RunningConfig config;     // as read; secrets masked
    std::string config_file;  // absolute; empty = none
    bool once = false;
  };

  virtual ~Daemon() = default;

  // Ties new options to their keys; at the start, and whenever they are read again.
  virtual void Bind(ConfigSection& config) = 0;
  // Of the options read last.
  virtual absl::Status Validate() const { return absl::OkStatus(); }
  virtual log::Options LogOptions() const = 0;

  // With the options read last. The status ends the process.
  virtual absl::Status Start(const Beginning& beginning) = 0;
  // --once: works off what is there. The status says why it could not.
  virtual absl::Status RunOnce(const std::stop_token& /*stop*/) { return absl::OkStatus(); }
  // The exit code after a RunOnce that ended with this.
  virtual int ExitCode(const absl::Status& /*ended*/) const { return 1; }
  // Follows the options read last, which are valid, as far as it can.
  virtual void Reload(const RunningConfig& /*config*/) {}
  // Whether its own loops make their turns: false has the service manager's watchdog start it anew,
  // which cures a thread that hangs and no database. REQUIRES: started and not stopped.
  virtual bool Alive() const { return true; }
  // REQUIRES: started; a start that failed is undone by the destructor.
  virtual void Stop() = 0;
  // A statement that hangs must not hang the stop: what is not done by then will come again.
  virtual Millis StopWithin(const absl::Status& /*ended*/) const { return Millis(10'000); }
};

// The rest of main: command line, configuration, log and signals. Exit codes: 0 = it was told to
// stop, or --once is through; 1 = it could not start or go on; 2 = a mistake in the command line or
// the configuration; 3 = not everything was finished when the time to stop was over; 130 = a second
// signal.
int RunDaemon(int argc, char** argv, const Daemon::About& about, Daemon& daemon);

}  // namespace lockstep
