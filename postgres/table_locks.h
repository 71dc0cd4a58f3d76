#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::postgres {

// Who keeps others from writing tables: a session that holds a lock on one of them (or waits for
// one, and all behind it), in words; empty when nobody does. The tables are those of `schema` and
// `tables` (as schema.table), with their partitions and those at the other end of a foreign key.
// Of the session's statement only the first words are told: what follows may be anybody's data.
absl::StatusOr<std::string> WhoLocks(Executor& executor, const std::string& schema,
                                     const std::vector<std::string>& tables);

}  // namespace lockstep::postgres
