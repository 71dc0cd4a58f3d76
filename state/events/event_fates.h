#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// What became of events in one generation of a group, for those who follow one or compare many.
// Reads without locks.
class EventFates : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // What is known of an event; what is not is empty.
  struct Event {
    std::string event_id;
    std::string aggregate_key;
    std::optional<int64_t> version;
    std::string message_id;
  };

  struct Fate {
    std::optional<WallTime> received_at;  // the inbox has it
    bool parked = false;
    std::string dead;  // the state of its dead letter; empty = there is none
  };
  // Event by event. REQUIRES: each has its id, aggregate and version.
  absl::StatusOr<std::vector<Fate>> Of(postgres::Connection& connection, int generation,
                                       const std::vector<Event>& events) const;

  // The inbox in the order of the ids: those past `after` up to `last` (empty = from the first, to
  // the last) that came from `from` on and before `until`: event_id, received_at.
  struct Range {
    std::string after, last;
    WallTime from, until;
  };
  absl::StatusOr<postgres::Result> Entries(postgres::Connection& connection, int generation,
                                           const Range& range, int limit) const;

  // One event, by whatever is known of it: `received_at`; of its aggregate settled_version,
  // blocked_version; as it waits parked_at, parked_version, parked_event, parked_reason; as a dead
  // letter dead_letter (its id), dead_event, dead_version, dead_key, dead_state, code, reason,
  // dead_at, resolved_at, publish_time. One row.
  absl::StatusOr<postgres::Result> Trace(postgres::Connection& connection, int generation,
                                         const Event& event) const;
};

}  // namespace lockstep::state
