#pragma once

#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::offsets {

// Now, for a Seek to "now": the earlier of this machine's clock and the database's. A Seek into the
// future drops what is published until then, and one clock that is fast must not cause that; a
// little too early only brings events again that the inbox knows.
absl::StatusOr<WallTime> CautiousNow(postgres::Connection& connection);

}  // namespace lockstep::offsets
