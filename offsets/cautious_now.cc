#include "offsets/cautious_now.h"

#include <algorithm>

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::offsets {

absl::StatusOr<WallTime> CautiousNow(postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const postgres::Result theirs, connection.Execute("SELECT clock_timestamp()"));
  return std::min(Clock::System().Now(), theirs.Time(0, 0));
}

}  // namespace lockstep::offsets
