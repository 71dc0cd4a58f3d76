#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "publisher/backfill/backfill_record.h"
#include "state/events/inbox.h"
#include "state/groups/epochs.h"

namespace lockstep::operations {

// Whether a group has what backfills have sent: the messages that were sent last, by their ids, and
// snapshots of as many aggregates as there were rows. Neither alone would do: keys overtake each
// other, and other backfills have sent snapshots too. Counting reads all keys of the group, so it
// is done seldom, however often one looks.
class SnapshotArrival {
 public:
  // `kept`: for how long the group knows an event's id.
  SnapshotArrival(const state::Schema& schema, const ConsumerGroup& group, Millis kept)
      : epochs_(schema, group), inbox_(schema), kept_(kept) {}

  struct Look {
    int64_t sent = 0;
    int64_t taken = 0;    // aggregates, when they were last counted
    int64_t lacking = 0;  // of the last messages

    bool all() const { return taken >= sent && lacking == 0; }
    bool operator==(const Look&) const = default;
  };
  // REQUIRES: these are done.
  absl::StatusOr<Look> At(postgres::Connection& connection,
                          const std::vector<publisher::BackfillRecord>& backfills);

 private:
  const state::Epochs epochs_;
  const state::Inbox inbox_;
  const Millis kept_;
  int64_t taken_ = 0;
  SteadyTime count_again_;
};

}  // namespace lockstep::operations
