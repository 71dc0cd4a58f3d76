#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// Looks at the rows of an outbox, what an operator does to them, and what they need besides being
// relayed. Never reads a payload.
namespace lockstep::publisher {

// Rows that failed and will be tried again.
absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection,
                                     const postgres::QualifiedName& table);
absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const postgres::QualifiedName& table);

// The newest committed position; 0 = none.
absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
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

// Old rows are deleted, at most so many at a time. Answers how many.
absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const postgres::QualifiedName& table, Millis older_than,
                                        int rows);
absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection,
                                   const postgres::QualifiedName& table, Millis older_than,
                                   int rows);

// Rows held behind a blocker that is gone; a safety net. Answers how many.
absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection,
                                    const postgres::QualifiedName& table, bool dead_blocks);

}  // namespace lockstep::publisher
