#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// Looks at the rows of an outbox, and what an operator does to them. Never reads a payload.
namespace lockstep::publisher {

// Rows to be published: not dead, not quarantined; those held back included. Counted up to a bound:
// counting further would cost more than it tells.
struct Backlog {
  static constexpr int64_t kCountAtMost = 1'000'000;

  int64_t pending = 0;
  int64_t locked = 0;  // of them, under a lease
  Millis oldest{0};    // age of the oldest row that may go; 0 = none
};
absl::StatusOr<Backlog> CountBacklog(postgres::Connection& connection,
                                     const postgres::QualifiedName& table);

// Rows that failed and will be tried again.
absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection,
                                     const postgres::QualifiedName& table);
absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const postgres::QualifiedName& table);

// The dead rows for the status page (web/README.md), the newest first, and how many there are.
struct DeadRows {
  int64_t dead = 0;
  int64_t quarantined = 0;
  nlohmann::json newest = nlohmann::json::array();
};
absl::StatusOr<DeadRows> ReadDeadRows(postgres::Connection& connection,
                                      const postgres::QualifiedName& table);

// Which rows an operator means; what is empty is not asked for.
struct RowFilter {
  std::string event;  // its id
  std::string key;
  std::string tenant;
  std::string topic;
  std::string type;
  std::string code;
  Millis older_than{0};

  friend bool operator==(const RowFilter&, const RowFilter&) = default;
};
enum class RowState { kAny, kPending, kDead, kQuarantined, kMayBeQuarantined };

// A list of objects with the row's columns, in the order of their sequences.
absl::StatusOr<nlohmann::ordered_json> FindRows(postgres::Connection& connection,
                                                const postgres::QualifiedName& table,
                                                RowState state, const RowFilter& filter,
                                                int64_t at_most);
// What was done to a row by hand: a list of {at, actor, action, note}.
absl::StatusOr<nlohmann::ordered_json> ReadAudit(postgres::Connection& connection,
                                                 const postgres::QualifiedName& table,
                                                 int64_t sequence);
// `action`: replay, quarantine or release. Answers how many rows changed.
absl::StatusOr<int64_t> ChangeRows(postgres::Connection& connection,
                                   const postgres::QualifiedName& table, const std::string& action,
                                   const std::vector<int64_t>& sequences, const std::string& actor,
                                   const std::string& note);

}  // namespace lockstep::publisher
