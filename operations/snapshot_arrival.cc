#include "operations/snapshot_arrival.h"

#include <algorithm>

#include "platform/status.h"

namespace lockstep::operations {
namespace {

// A count may take a twentieth of the time.
constexpr int kCountShare = 20;

}  // namespace

absl::StatusOr<SnapshotArrival::Look> SnapshotArrival::At(
    postgres::Connection& connection, const std::vector<publisher::BackfillRecord>& backfills) {
  Look look;
  std::vector<state::EventFates::Event> last;
  const WallTime forgotten = Clock::System().Now() - kept_;
  for (const publisher::BackfillRecord& record : backfills) {
    look.sent += record.rows_done;
    if (record.ended_at && *record.ended_at < forgotten) continue;
    for (const std::string& id : record.last_events) {
      last.push_back({.event_id = id, .snapshot = true});
    }
  }
  ASSIGN_OR_RETURN(const state::GroupEpoch epoch, epochs_.Load(connection));
  ASSIGN_OR_RETURN(const auto seen, inbox_.Seen(connection, epoch.generation, last));
  look.lacking = std::ranges::count(seen, false);
  const SteadyTime begun = Clock::System().Steady();
  if (begun >= count_again_) {
    ASSIGN_OR_RETURN(taken_, inbox_.CountSnapshots(connection, epochs_.group()));
    const SteadyTime now = Clock::System().Steady();
    count_again_ = now + kCountShare * (now - begun);
  }
  look.taken = taken_;
  return look;
}

}  // namespace lockstep::operations
