#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::postgres {
class Connection;
}

// What operators see of idempotency keys, and do to them. On the connection's thread.
namespace lockstep::idempotency {

struct KeyFilter {
  std::optional<std::string> tenant;  // nullopt = of all
  std::string prefix;                 // of the key; empty = any
  std::string state;                  // InFlight, Succeeded, Failed; empty = any
  int limit = 100;
};

// The youngest first.
absl::StatusOr<nlohmann::ordered_json> ListKeys(postgres::Connection& connection,
                                                const KeyFilter& filter);
// One, with its digest and what was done to it by hand. NOT_FOUND.
absl::StatusOr<nlohmann::ordered_json> ShowKey(postgres::Connection& connection,
                                               const std::optional<std::string>& tenant,
                                               const std::string& key);

struct Release {
  std::optional<std::string> tenant;
  std::string key, actor, note;
  bool force = false;  // although its caller may be at work
};
// Frees a key, with an audit entry; answers the state that it had. NOT_FOUND.
absl::StatusOr<std::string> ReleaseKey(postgres::Connection& connection, const Release& release);

// Deletes what has expired, so many rows a transaction, until nothing is left; answers how many.
absl::StatusOr<int64_t> CleanKeys(postgres::Connection& connection, int at_most);

// `function`: grant_caller, grant_reader, grant_operator or revoke_rights.
absl::Status ChangeRights(postgres::Connection& connection, const std::string& function,
                          const std::string& role);

}  // namespace lockstep::idempotency
