#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// Which dead letters are meant. Everything that is set must hold.
struct DeadLetterFilter {
  std::optional<int64_t> id;
  std::string event_id;
  std::string key;  // an aggregate (video/123) or an ordering key
  std::string code;
  std::string event_type;
  std::string state;  // empty = dead and quarantined; `any` = all

  // Whether it means something in particular: what a dangerous command asks for.
  bool selective() const {
    return id || !event_id.empty() || !key.empty() || !code.empty() || !event_type.empty();
  }
};

struct DeadLetterRow {
  int64_t id = 0;
  std::string event_id, aggregate_key, event_type, message_id, ordering_key, code, reason, state,
      note, attributes;
  std::optional<int64_t> version;
  int attempts = 0;
  bool blocks = false;
  int64_t waiting = 0;  // events that are parked behind it
  int64_t payload_bytes = 0;
  std::string dead_at;
  std::string payload;  // only when asked for
};

// What an operator sees of the dead letters of one group, and what needs no projection: listing,
// showing, quarantine.
class DeadLetterDesk : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // In the order in which they must be replayed: by aggregate and version.
  absl::StatusOr<std::vector<DeadLetterRow>> List(postgres::Connection& connection,
                                                  const DeadLetterFilter& filter, int limit) const;
  absl::StatusOr<DeadLetterRow> Show(postgres::Connection& connection, int64_t id,
                                     bool with_payload) const;

  // Keeps it from every replay by filter until it is taken out again; its aggregate goes on
  // waiting. Answers how many were moved.
  absl::StatusOr<int64_t> Quarantine(postgres::Connection& connection,
                                     const std::vector<int64_t>& ids, bool quarantined,
                                     const std::string& operator_name,
                                     const std::string& note) const;

  // Open ones (at most "very many"), and those that were ever replayed.
  absl::StatusOr<int64_t> CountOpen(postgres::Connection& connection) const;
  absl::StatusOr<int64_t> CountReplayed(postgres::Connection& connection) const;
  // The newest open ones: id, event_id, message_id, aggregate_key, ordering_key, version,
  // event_type, code, reason, attempts, blocks, state, dead_at, publish_time.
  absl::StatusOr<postgres::Result> Newest(postgres::Connection& connection, int limit) const;
};

}  // namespace lockstep::state
