#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// Looks at the rows of an outbox, what an operator does to them, and what they need besides being
// relayed. Never reads a payload.
namespace lockstep::publisher {

// What the database says about one outbox, for the status page and the gauges.
struct OutboxRecord {
  // To be published: not dead, not quarantined; those held back included. Counted up to a bound.
  int64_t pending = 0;
  int64_t locked = 0;  // of them, under a lease
  Millis oldest{0};    // age of the oldest row that may go; 0 = none
  int64_t dead = 0;
  int64_t quarantined = 0;
  int64_t replays = 0;  // by hand, since the look before
  int64_t failed_backfills = 0;
  int64_t backfill_rows = 0;  // still to be sent, about
  bool known = false;         // false = not read yet
  // These and the dead rows, as the outbox's part of the status document has them (web/README.md).
  nlohmann::json part = nlohmann::json::object();
};

// Never reads a payload. `audit`: the newest row of the audit that was seen, which moves on;
// nullopt the first time, when no replay counts.
absl::StatusOr<OutboxRecord> ReadOutboxRecord(postgres::Connection& connection,
                                              const postgres::QualifiedName& table,
                                              std::optional<int64_t>& audit);

// Rows that failed and will be tried again.
absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection,
                                     const postgres::QualifiedName& table);

absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const postgres::QualifiedName& table);
// Those of them up to a position that go by themselves: neither dead nor quarantined, nor held
// behind one that is.
absl::StatusOr<int64_t> CountWaiting(postgres::Connection& connection,
                                     const postgres::QualifiedName& table, int64_t sequence);
// The newest event about aggregates of that type up to a position, among the last ten thousand rows
// that are published; nothing when there is none.
struct PublishedEvent {
  std::string event_id;
  std::string aggregate_key;
  int64_t version = 0;
  std::string message_id;
};
absl::StatusOr<std::optional<PublishedEvent>> NewestPublished(postgres::Connection& connection,
                                                              const postgres::QualifiedName& table,
                                                              const std::string& aggregate_type,
                                                              int64_t sequence);
// The newest committed position; 0 = none.
absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
                                       const postgres::QualifiedName& table);

// Which rows an operator means; what is empty is not asked for.
struct RowFilter {
  std::vector<std::string> events = {};  // their ids
  std::string key;                       // an aggregate's id, or type/id, type@tenant/id
  std::string tenant;
  std::string topic;
  std::string type;
  std::string code;
  Millis older_than{0};
  std::string aggregate_type = {};
  std::optional<int64_t> version = {};
  std::string message_id = {};

  friend bool operator==(const RowFilter&, const RowFilter&) = default;
};
enum class RowState {
  kAny,
  kUnpublished,
  kPending,
  kDead,
  kQuarantined,
  kPublished,
  kMayBeQuarantined
};

// A list of objects with the row's columns, in the order of their sequences; times as Postgres
// writes them.
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

// Takes what one aggregate's events say out of rows that are published, dead or quarantined: the
// payload, the sender's own attributes, the error's text. Ids and versions stay, so that enqueue
// knows them; an erased row that is replayed after all is poison for every projection. Audited row
// by row. FAILED_PRECONDITION, and nothing is changed, while rows of the aggregate wait to be
// published: consumers would wait for their versions. An empty tenant = none.
absl::StatusOr<int64_t> EraseRows(postgres::Connection& connection,
                                  const postgres::QualifiedName& table, const std::string& type,
                                  const std::string& id, const std::string& tenant,
                                  const std::string& actor, const std::string& note);

// Audits of one outbox so old, at most so many; never what is younger than 30 days.
absl::StatusOr<int64_t> DeleteAudits(postgres::Connection& connection,
                                     const postgres::QualifiedName& table, Millis older_than,
                                     int rows);

// Old rows are deleted, at most so many at a time. Answers how many. `below`: sequences from there
// on are left alone.
absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const postgres::QualifiedName& table, Millis older_than,
                                        int rows,
                                        int64_t below = std::numeric_limits<int64_t>::max());
absl::StatusOr<int64_t> DeleteContents(postgres::Connection& connection,
                                       const postgres::QualifiedName& table, int rows);
absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection,
                                   const postgres::QualifiedName& table, Millis older_than,
                                   int rows);

// Rows that wait only because the database's clock has gone back since: they are due. (Also those
// that stood behind another's lease; the next claim puts them back.) No retry and no lease lasts
// longer than `longest_wait`. Answers how many.
absl::StatusOr<int64_t> PullBack(postgres::Connection& connection,
                                 const postgres::QualifiedName& table, Millis longest_wait);

// Rows held behind a blocker that is gone; a safety net. Answers how many.
absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection,
                                    const postgres::QualifiedName& table, bool dead_blocks);

}  // namespace lockstep::publisher
