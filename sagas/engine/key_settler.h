#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "sagas/engine/attempt.h"
#include "sagas/engine/hand.h"

namespace lockstep::sagas {

// What became of a call whose orchestrator died, or whose answer did not come: its idempotency key
// in this database tells (docs/idempotency.md). nullopt = whoever has the key is at it still. An
// error is the database's.
absl::StatusOr<std::optional<Outcome>> AskKey(postgres::Connection& session, const Held& held,
                                              int step);

}  // namespace lockstep::sagas
