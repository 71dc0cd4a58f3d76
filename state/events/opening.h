#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/received.h"
#include "state/events/inbox.h"
#include "state/events/key_states.h"
#include "state/groups/epochs.h"
#include "state/schema.h"

namespace lockstep::state {

// A run of versions of one aggregate without a gap or a poisoned event: the usual case.
struct VersionSpan {
  std::string aggregate_key;
  int64_t first = 0;
  int64_t last = 0;
  bool smooth = true;     // false: there is a gap or poison in it, so it must be planned
  bool snapshot = false;  // it begins with a snapshot, and is not smooth
  bool alone = false;     // it is that snapshot and nothing else: a row made for it needs no plan
  std::string settles;    // the event (of a smooth one) or snapshot whose version a new row settles
};

// Whether a generation that goes by versions knows the message again by its id all the same.
inline bool KnownById(const envelope::Received& item) {
  return !item.ordered() || item.event.is_snapshot();
}

// The items of a batch by event id, and which of them are the first with theirs. Items without a
// readable id count as such.
struct Arrivals {
  Arrivals() = default;
  // `fates`: what is to be expected of them, item by item.
  Arrivals(std::span<const envelope::Received* const> items, const std::vector<Fate>& fates,
           bool by_versions);

  // One per id, for the inbox: all, or those that versions can't tell.
  std::vector<std::pair<const envelope::Received*, Fate>> sorted;
  std::vector<bool> first;  // item by item
};

// The statement with which a batch's transaction begins, in one round trip: the epoch is read; the
// inbox, a narrow row per event and generation that makes its effect happen once, takes the events;
// and, if all of them are new, as they mostly are, their aggregates are locked.
//
// Where versions are followed, locking makes missing rows of key_state and moves a row forward at
// once where the span is smooth and follows the settled version. Where events are known by their
// versions, the inbox takes the others alone, and what is not new among the events is for the plan
// of their aggregate to find: its row is not moved. A missing row begins where its span does: with
// `from_the_first` only if that is version 1 or a snapshot, else with nothing.
//
// Ids and keys go in sorted, so that two batches which meet queue instead of deadlocking; and the
// keys come after the inbox, so that the later batch sees what the earlier one decided.
class Opening {
 public:
  Opening(const Schema& schema, bool track_versions, bool from_the_first);

  struct Answer {
    postgres::Result epoch;   // for Epochs::Check
    bool all_new = true;      // each that is the first with its id
    std::vector<bool> fresh;  // which are new, item by item
    KeyRows not_moved;        // the aggregates' rows that are there and need a plan
  };
  // REQUIRES: spans in the order of their keys.
  absl::StatusOr<Answer> Enter(postgres::Transaction& transaction, const GroupEpoch& under,
                               std::span<const envelope::Received* const> items,
                               const Arrivals& arrivals,
                               const std::vector<VersionSpan>& spans) const;

  // Locks the aggregates of a batch of which the inbox knew some.
  absl::StatusOr<KeyRows> Lock(postgres::Transaction& transaction, const GroupEpoch& under,
                               const std::vector<VersionSpan>& spans) const;

 private:
  const bool track_versions_;
  const bool from_the_first_;
  const Statement enter_;
};

}  // namespace lockstep::state
