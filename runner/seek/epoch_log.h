#pragma once

#include <string>

#include "postgres/connection.h"
#include "state/schema.h"

namespace lockstep::runner {

// Says in the log that a group has moved on to another epoch: who did it, why, from where to where,
// as the audit has it.
void LogEpochChange(postgres::Connection& connection, const state::Schema& schema,
                    const std::string& group, int64_t epoch);

}  // namespace lockstep::runner
