#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// A mismatch between the declaration and the database.
struct Mismatch {
  std::string place;  // file:line:column
  std::string what;   // with its cure
};

// Every mismatch of tables, columns, types and remembered message fields. The status is the
// database's.
absl::StatusOr<std::vector<Mismatch>> FindMismatches(const GroupPlan& plan,
                                                     postgres::Connection& connection);

// The same as one status, a line per mismatch. When all is well, records the message fields in use
// (where there is a state schema).
absl::Status CheckGroup(const GroupPlan& plan, postgres::Connection& connection);

// Records the message fields in use, for the check at the next start.
absl::Status RememberFields(const GroupPlan& plan, postgres::Connection& connection);

}  // namespace lockstep::projections
