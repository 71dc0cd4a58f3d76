#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"

// What the sessions of a comparison have in common.
namespace lockstep::verify {

// Neither side is ever written by a comparison.
absl::Status MakeReadOnly(postgres::Connection& connection);

// A statement with a declared query in it, whatever that calls or sets: in a transaction that is
// read-only itself. REQUIRES: it has a parameter; only then Postgres takes no second statement
// behind a semicolon.
absl::StatusOr<postgres::Result> AskReadOnly(postgres::Connection& connection, std::string_view sql,
                                             const postgres::Params& params);

// FAILED_PRECONDITION where the source is a standby: what it has not replayed yet would look like
// rows that only the replica has.
absl::Status RefuseStandby(postgres::Connection& source);

}  // namespace lockstep::verify
