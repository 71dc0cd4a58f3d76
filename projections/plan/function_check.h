#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "projections/model/call.h"
#include "projections/plan/table_check.h"

namespace lockstep::projections {

// What a function of the service takes: an array of the state schema's type `event`, or jsonb, an
// array of objects with the same names.
enum class EventsAs { kArray, kJson };

// How the function takes its events. FAILED_PRECONDITION with a sentence and its cure when it is
// not there, takes something else, can't be told from another, or may not be called by this role.
absl::StatusOr<EventsAs> FindFunction(const Call& call, const std::string& state_schema,
                                      postgres::Executor& on);

// The same as a mismatch. The status is the database's.
absl::Status CheckFunction(const Call& call, const std::string& state_schema,
                           postgres::Executor& on, std::vector<Mismatch>* found);

}  // namespace lockstep::projections
