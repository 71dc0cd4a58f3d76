#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// Which events each generation has seen, for those who ask; batches write it (Opening).
class Inbox {
 public:
  explicit Inbox(const Schema& schema) : schema_(schema) {}

  // Of the group's active slot.
  absl::StatusOr<int64_t> CountSince(postgres::Connection& connection, const ConsumerGroup& group,
                                     WallTime since) const;

  // Events that the active slot of one group has since then and that of the other lacks; of these,
  // how many came since `lately`.
  struct Missing {
    int64_t all = 0;
    int64_t recent = 0;
  };
  absl::StatusOr<Missing> CountMissing(postgres::Transaction& transaction, const ConsumerGroup& in,
                                       const ConsumerGroup& not_in, WallTime since,
                                       WallTime lately) const;

  // Whether the generation has seen them, one by one; an empty id it has not.
  absl::StatusOr<std::vector<bool>> Seen(postgres::Connection& connection, int generation,
                                         const std::vector<std::string>& ids) const;

 private:
  const Schema schema_;
};

}  // namespace lockstep::state
