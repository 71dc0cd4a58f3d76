#pragma once

#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "platform/clock.h"
#include "platform/daemon/reload.h"

// The parts of a status document that publisher and runner have in common.
namespace lockstep::web {

nlohmann::json TimeOrNull(WallTime at);  // the epoch of the clock = null
int64_t AgeMs(WallTime at, WallTime now);

// Each key with its value, its default and, where a change waits for a restart, the value then.
nlohmann::json ConfigJson(const RunningConfig& config);

// How the rounds that read the database for the page go: one thread reads (and may hang with the
// database), another composes the document and never waits.
class DatabaseReading {
 public:
  // `address`: without its password.
  DatabaseReading(std::string address, WallTime started_at)
      : address_(std::move(address)), checked_at_(started_at) {}

  // A round has ended; `error` is empty when everything was read.
  void Done(std::string error, WallTime now);
  // A round was not needed: what was read last is still good enough. Only after a good round.
  void Skipped(WallTime now);
  // When everything was last read, the last round having been good; else the epoch of the clock.
  WallTime good_since() const;

  nlohmann::json ToJson(WallTime now) const;

 private:
  const std::string address_;
  mutable std::mutex mu_;
  WallTime read_at_;
  WallTime checked_at_;  // when it was last read, or need not be
  std::string error_;
};

}  // namespace lockstep::web
