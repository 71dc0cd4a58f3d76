#pragma once

#include "absl/status/status.h"
#include "postgres/connection.h"

// What the sessions of a comparison have in common.
namespace lockstep::verify {

// Neither side is ever written by a comparison, whatever a declared query calls.
absl::Status MakeReadOnly(postgres::Connection& connection);

// FAILED_PRECONDITION where the source is a standby: what it has not replayed yet would look like
// rows that only the replica has.
absl::Status RefuseStandby(postgres::Connection& source);

}  // namespace lockstep::verify
