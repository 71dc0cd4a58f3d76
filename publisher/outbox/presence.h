#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"

namespace lockstep::publisher {

// What a publisher says of itself in its database, so that others find it (lockstepctl console).
struct Presence {
  std::string instance;
  std::string address;  // of its status page, as others reach it; empty = it has none
  std::vector<std::string> outboxes;
  WallTime started_at;
};

// Writes it, and takes away those that were not seen for an hour.
absl::Status Announce(postgres::Connection& connection, const Presence& presence);

// At a clean end.
absl::Status Leave(postgres::Connection& connection, const std::string& instance);

// The newest 100 that were seen within the last hour: {instance, address, version, outboxes,
// started_at, seen_at}.
absl::StatusOr<nlohmann::json> ListPublishers(postgres::Connection& connection);

}  // namespace lockstep::publisher
