#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/strong_id.h"
#include "postgres/connection.h"
#include "state/schema.h"

namespace lockstep::offsets {

// Whom a change of a group waits for, and how long.
struct LockWait {
  std::vector<std::string> tables;  // schema.table: what it locks besides the group's epoch
  Millis each{1'000};               // one try; batches and readers that come later wait behind it
  Millis give_up{120'000};          // 0 = one try only
  // Called when a try was in vain, with a line for each session that holds a lock.
  std::function<void(const std::vector<std::string>& holders)> on_wait;
};

// Runs `change` in a transaction of its own and commits it. When it does not get a lock in time it
// is rolled back, so that those who queue behind it get on, and tried again. DEADLINE_EXCEEDED,
// with those who hold the locks, when it is given up.
absl::Status WithLockRetry(postgres::Connection& connection, const state::Schema& schema,
                           const ConsumerGroup& group, const LockWait& wait,
                           const std::function<absl::Status(postgres::Transaction&)>& change);

}  // namespace lockstep::offsets
