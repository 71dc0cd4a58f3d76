#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::state {

// The schemas of a database that hold a service's state, by name: for whoever was told none.
absl::StatusOr<std::vector<std::string>> FindSchemas(postgres::Executor& session);

}  // namespace lockstep::state
