#pragma once

#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/daemon/daemon.h"
#include "platform/metrics.h"

// The parts of a status document that publisher and runner have in common.
namespace lockstep::web {

nlohmann::json TimeOrNull(WallTime at);  // the epoch of the clock = null
int64_t AgeMs(WallTime at, WallTime now);

// Puts *** in place of what tells a key (TellsAKey), in every part but the configuration, whose
// `key`s are its own.
void Mask(nlohmann::json& part);

// Each key with its value, its default and, where a change waits for a restart, the value then.
nlohmann::json ConfigJson(const RunningConfig& config);

// How the rounds that read the database for the page go: one thread reads (and may hang with the
// database), another composes the document and never waits.
class DatabaseReading {
 public:
  // `address`: shown without its password.
  DatabaseReading(const std::string& address, WallTime started_at);

  // A round has ended; `error` is empty when everything was read.
  void Done(std::string error, WallTime now);
  // A round was not needed: what was read last is still good enough. Only after a good round.
  void Skipped(WallTime now);
  // When everything was last read, the last round having been good; else the epoch of the clock.
  WallTime good_since() const;

  const std::string& address() const { return address_; }
  nlohmann::json ToJson(WallTime now) const;

 private:
  const std::string address_;
  mutable std::mutex mu_;
  WallTime read_at_;
  WallTime checked_at_;  // when it was last read, or need not be
  std::string error_;
};

// What every daemon tells of itself: who it is, whether it is ready (the gauge lockstep_ready too),
// its database and its configuration. Safe from any thread.
class Daemon {
 public:
  // `config`: as read, secrets masked.
  Daemon(std::string role, std::string instance, RunningConfig config, MetricsRegistry& metrics);

  // The configuration was read again.
  void SetConfig(const RunningConfig& config);

  // The head of the document. `reasons`: why it is not ready; none = it is.
  nlohmann::json Head(const std::vector<std::string>& reasons, const DatabaseReading& database,
                      WallTime now);

 private:
  const std::string role_;
  const std::string instance_;
  const WallTime started_at_ = Clock::System().Now();
  prometheus::Gauge& ready_;
  std::mutex mu_;
  RunningConfig config_;
};

}  // namespace lockstep::web
