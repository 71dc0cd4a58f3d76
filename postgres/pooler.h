#pragma once

#include "absl/status/status.h"
#include "postgres/connection.h"

namespace lockstep::postgres {

// Refuses a transaction pooler on the way to Postgres: what a session has (its locks, settings and
// prepared statements) does not hold there. `session` was opened with `options`. A pooler may look
// like none by luck, so whoever holds locks looks at his session's process again and again.
absl::Status RefuseTransactionPooler(Connection& session, const ConnectionOptions& options);

}  // namespace lockstep::postgres
