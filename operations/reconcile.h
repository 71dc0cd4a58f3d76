#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/source_event.h"
#include "state/events/event_fates.h"
#include "state/groups/epochs.h"

namespace lockstep::operations {

using envelope::SourceEvent;

// What the source's side of a comparison says, from its database or from a file.
struct SourceLedger {
  WallTime since;  // published since then
  WallTime as_of;  // when it was read, by the source's clock
  // Since when it keeps all that it published; it deletes while the comparison goes on.
  std::function<absl::StatusOr<WallTime>()> oldest;
  // The next events in the order of their ids; none = that was all.
  std::function<absl::StatusOr<std::vector<SourceEvent>>()> next;
  // Which of these the source has after all; without it (a file) nobody can be asked.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::vector<std::string>&)> kept;
};

struct ReconcileOptions {
  Millis grace{60'000};  // by which clocks and deliveries may be apart
  int page = 5'000;
  size_t most_listed = 1'000;
  // Waits until the group has had what was delivered by now; fails when that can't be told.
  std::function<absl::Status()> pass;
};

struct Reconciliation {
  // applied, superseded, ignored, settled (one of these three, where the group goes by versions),
  // parked, dead, discarded, covered (never received, but a snapshot
  // brought its version or a later one), on_its_way, unpublished, quarantined, dead_at_source,
  // left_out, missing; of the inbox: entries, snapshots, no_longer_kept, orphans.
  std::map<std::string, int64_t> counts;
  std::vector<SourceEvent> missing;  // the first of them
  std::vector<std::pair<std::string, WallTime>> orphans;
  std::string offset_message;  // where the group's offset stands, and which event that is
  std::string offset_event;
  std::optional<WallTime> offset_time;
  std::string unconfirmed;  // why what is missing may be late only; empty = it is not

  bool clean() const { return counts.at("missing") == 0 && counts.at("orphans") == 0; }
};

// Compares what a source has published with what a group has received, event by event, in the order
// of their ids, a page at a time. An event that the group lacks is missing if it was published
// before the group's offset, and it still does when the group has passed that point; newer ones are
// on their way. An inbox entry whose row the source should still have is an orphan; where the group
// goes by versions, the entries are the last event of each aggregate.
absl::StatusOr<Reconciliation> Reconcile(postgres::Connection& connection,
                                         const state::Schema& schema, const ConsumerGroup& group,
                                         const SourceLedger& source,
                                         const ReconcileOptions& options);

}  // namespace lockstep::operations
