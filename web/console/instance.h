#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::web {

// A publisher, runner or orchestrator that the console asks.
struct Instance {
  std::string address;   // http://host:port
  std::string role;      // publisher, runner, orchestrator; empty = whatever answers
  std::string name;      // as the database knows it; empty = it was named on the command line
  std::string found_in;  // the database, without its password; empty as above
  WallTime seen_at;      // when it last wrote there; the epoch = not known

  friend bool operator==(const Instance&, const Instance&) = default;
};

// What came of asking one.
struct Asked {
  Instance instance;
  bool answers = false;
  std::string fault;     // why not; empty = it answers, or was not asked yet
  WallTime since;        // when that began; the epoch = not asked yet
  WallTime answered_at;  // the epoch = never
  nlohmann::json told;   // the last answer's TellOf; null = none
};

// Of a daemon's /api/status what the console shows: neither its configuration nor its history. The
// error says what is wrong with the answer: it comes from whatever listens at that address.
absl::StatusOr<nlohmann::json> TellOf(std::string_view body, const Instance& instance);

}  // namespace lockstep::web
