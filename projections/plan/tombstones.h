#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::projections {

// Versions of the deletes that a generation of a group remembers, of a table that is deleted from
// hard: by row_key, a key's text as the table's types have it (of several columns that of a ROW).
absl::StatusOr<std::map<std::string, int64_t>> ReadTombstones(
    postgres::Connection& connection, const std::string& state_schema, const std::string& group,
    int64_t generation, const std::string& projection, const std::vector<std::string>& row_keys);

}  // namespace lockstep::projections
