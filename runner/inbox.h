#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "offsets/state_schema.h"
#include "runner/inbound.h"

namespace lockstep::postgres {
class Transaction;
}

namespace lockstep::runner {

// What makes the effect of an event happen once: a narrow row per event and generation.
class Inbox {
 public:
  explicit Inbox(const offsets::StateSchema& schema);

  // Records the events and answers, item by item, which are new (of one that is in the span twice,
  // the first). One statement; the ids go in sorted, so that two batches which hold the same
  // events queue instead of deadlocking. Items without a readable id count as new.
  absl::StatusOr<std::vector<bool>> Insert(postgres::Transaction& transaction, int generation,
                                           std::span<Inbound* const> items) const;

 private:
  const offsets::StateStatement insert_;
};

}  // namespace lockstep::runner
