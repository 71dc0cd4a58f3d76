#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::postgres {
class Transaction;
}

// How a service puts its events into an outbox. Public: docs/embedding.md.
namespace lockstep::publisher {

// An event for an outbox; see docs/wire.md for what becomes of each field.
struct NewEvent {
  std::string topic;  // logical: [a-z0-9.-], under 128
  std::string aggregate_type;
  std::string aggregate_id;  // the ordering key
  std::string event_type;    // as in protobuf
  int64_t version = 0;       // of the aggregate: 1, 2, 3 …
  std::string payload;
  std::string content_type = "application/protobuf";
  int64_t schema_version = 1;
  std::string event_id;  // a uuid; empty = a time-ordered one is made
  std::optional<std::string> tenant_id;
  std::map<std::string, std::string> attributes;
  std::optional<std::string> traceparent;
  std::optional<std::string> tracestate;
  std::optional<WallTime> occurred_at;  // nullopt = now
  // Content dedup (docs/routes.md): the same payload is sent to a space once. nullopt = always.
  std::optional<std::string> target_space = std::nullopt;
};

// Puts an event into an outbox in the caller's transaction: it is published if and when that
// commits. Answers its sequence; for a repeated event_id, the first one's. A version that is not
// above the aggregate's highest, and what Pub/Sub would refuse, are errors that spoil the
// transaction. For a transaction of libpqxx itself: enqueue_pqxx.h.
absl::StatusOr<int64_t> Enqueue(postgres::Transaction& transaction, const std::string& outbox,
                                const NewEvent& event);

// The same as SQL with parameters $1 … $16, for any other client.
inline constexpr char kEnqueueSql[] =
    "SELECT lockstep.enqueue($1::regclass, $2, $3, $4, $5, $6::bigint, $7::bytea, $8::uuid, $9, "
    "$10::int, $11, $12::jsonb, $13, $14, $15::timestamptz, $16)";
std::vector<std::optional<std::string>> EnqueueParameters(const std::string& outbox,
                                                          const NewEvent& event);

}  // namespace lockstep::publisher
