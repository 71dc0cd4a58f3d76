#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "state/schema.h"

namespace lockstep::state {

struct Erased {
  int64_t dead_letters = 0;
  int64_t parked = 0;
};

// Takes what one aggregate's events say out of dead letters and parked events, of all groups: the
// payload, the sender's own attributes, and texts that may quote them. Ids and versions stay, so
// that order and dedup hold; what is left can't be applied, and dies when somebody tries. Audited
// for each group that had something.
absl::StatusOr<Erased> EraseAggregate(postgres::Connection& connection, const Schema& schema,
                                      const envelope::Aggregate& aggregate,
                                      const std::string& operator_name, const std::string& reason);

}  // namespace lockstep::state
