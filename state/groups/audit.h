#pragma once

#include "absl/status/statusor.h"
#include "platform/strong_id.h"
#include "state/schema.h"

namespace lockstep::state {

// Who did what to a group by hand, and why. Its rows are written with what they tell of, by the
// other stores of this folder; nobody changes them.
class Audit {
 public:
  Audit(const Schema& schema, ConsumerGroup group);

  // Newest first: id, at, action, operator, reason, old, new, old_epoch, new_epoch.
  absl::StatusOr<postgres::Result> Newest(postgres::Connection& connection, int limit) const;

 private:
  const Schema schema_;
  const ConsumerGroup group_;
};

}  // namespace lockstep::state
