#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "pubsub/admin.h"
#include "state/positions/checkpoints.h"
#include "state/positions/seek_target.h"

namespace lockstep::offsets {

// committed, earliest, latest, checkpoint, snapshot:NAME or a time; nothing when it is none of
// them. `project` completes the name of a snapshot.
std::optional<state::SeekTarget> ParseSeekTarget(std::string_view text, std::string_view project);

// The same fixed: none, a time or a snapshot. FAILED_PRECONDITION without a checkpoint.
absl::StatusOr<state::SeekTarget> Resolve(const state::SeekTarget& target,
                                          postgres::Connection& connection,
                                          const state::Checkpoints& checkpoints, WallTime earliest,
                                          WallTime latest);

// Now, for a Seek to "now": the earlier of this machine's clock and the database's. A Seek into the
// future drops what is published until then, and one clock that is fast must not cause that; a
// little too early only brings events again that the inbox knows.
absl::StatusOr<WallTime> CautiousNow(postgres::Connection& connection);

// Whether Pub/Sub still holds what a resolved target asks for: a time not before `earliest`, which
// `keeper` (a topic or a subscription) reaches back to; a snapshot of the subscription's own topic.
// What we have no right to look up passes.
absl::Status Check(const state::SeekTarget& target, pubsub::Admin& admin,
                   const pubsub::Subscription& subscription, std::string_view keeper,
                   WallTime earliest);

}  // namespace lockstep::offsets
