#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// The groups of a service side by side, for whoever looks at them. Instances count as alive for 15
// seconds after they last said so.
class Overview {
 public:
  explicit Overview(const Schema& schema) : schema_(schema) {}

  // A row per group, or of that one: group_name, epoch, slot, generation, subscription,
  // publish_time, message_id, lag_ms, seek_state, instances.
  absl::StatusOr<postgres::Result> Positions(postgres::Connection& connection,
                                             const std::string& group) const;

  // A row per group: group_name, epoch, seek_state, instances, handled, queued, publish_lag_ms,
  // receive_lag_ms, commit_lag_ms, lag_ms (the greatest of the instances'), trouble, lag_basis (of
  // the farthest behind), behind_ms and offset_lag_ms (of the offset), waiting_keys, dead_letters.
  absl::StatusOr<postgres::Result> Lags(postgres::Connection& connection) const;

  // A row per instance that is alive under the epoch, or one without: epoch (the group's),
  // seek_done, instance, handled, queued, ready. None when there is no such group.
  absl::StatusOr<postgres::Result> Progress(postgres::Connection& connection,
                                            const std::string& group, int64_t epoch) const;

  // One row: through, up to when everything that was delivered has been applied: the least over the
  // instances that work, NULL when none does or one is not connected; newest, when the newest
  // message was published that has come through, a heartbeat or what an offset was saved for; and
  // now, by the clock of through.
  absl::StatusOr<postgres::Result> Through(postgres::Connection& connection,
                                           const std::string& group) const;

  // The runners that were seen within the last hour, of that group or (empty) of all, the newest
  // first: group_name, instance, address, version, state, started_at, seen_at.
  absl::StatusOr<postgres::Result> Instances(postgres::Connection& connection,
                                             const std::string& group, int limit) const;

  // The audit: who did what to a group by hand, and why. Its rows are written with what they tell
  // of, by the other classes of state/; nobody changes them. Newest first: id, at, action,
  // operator, reason, old, new, old_epoch, new_epoch.
  absl::StatusOr<postgres::Result> History(postgres::Connection& connection,
                                           const ConsumerGroup& group, int limit) const;

 private:
  const Schema schema_;
};

}  // namespace lockstep::state
