#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

struct TracedEvent;

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
    bool snapshot = false;  // known by its id, also where events are by their versions
  };

  struct Fate {
    // applied, superseded, ignored, parked, dead or discarded; of a generation that goes by
    // versions settled stands for the first three; empty = not received
    std::string name;
    bool covered = false;  // a snapshot brought its version, or a later one
  };
  // Event by event. REQUIRES: each has its id, aggregate and version.
  absl::StatusOr<std::vector<Fate>> Of(postgres::Connection& connection, int generation,
                                       const std::vector<Event>& events) const;

  // The inbox in the order of the ids: those past `after` up to `last` (empty = from the first, to
  // the last) that came from `from` on and before `until`: event_id, received_at. Of a generation
  // that goes by versions the last event of each aggregate, which reads all of key_state.
  struct Range {
    std::string after, last;
    WallTime from, until;
  };
  absl::StatusOr<postgres::Result> Entries(postgres::Connection& connection, int generation,
                                           const Range& range, int limit) const;

  // One event, by whatever is known of it. INVALID_ARGUMENT when its id is none.
  absl::StatusOr<TracedEvent> Trace(postgres::Connection& connection, int generation,
                                    Event event) const;

  // What is known of a key: an aggregate (video/42) or an ordering key. Each at most `limit` rows.
  struct OfKey {
    postgres::Result keys;    // aggregate_key, settled_version, snapshot_version, updated_at
    postgres::Result parked;  // event_id, version, event_type, aggregate_key, reason, parked_at
    postgres::Result dead;    // id, event_id, version, event_type, aggregate_key, state, code,
                              // reason, dead_at, resolved_at
  };
  absl::StatusOr<OfKey> TraceKey(postgres::Connection& connection, int generation,
                                 const std::string& key, int limit) const;
};

// What a group knows of one event.
struct TracedEvent {
  EventFates::Event event;                 // what was known, and what is found besides
  std::string fate;                        // as Fate::name
  std::string verdict;                     // that in words, without keys
  std::string reason;                      // of a dead letter: may quote anything
  std::optional<int64_t> settled_version;  // of its aggregate
  std::optional<int64_t> dead_letter;
  std::optional<WallTime> published;  // where the group has kept that
  std::optional<WallTime> received_at;
  std::optional<WallTime> parked_at;
  std::optional<WallTime> dead_at;
  std::optional<WallTime> resolved_at;
};

}  // namespace lockstep::state
