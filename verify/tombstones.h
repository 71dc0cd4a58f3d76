#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"
#include "verify/plan.h"
#include "verify/side.h"

namespace lockstep::verify {

// The versions in which the replica has deleted rows of these keys, as far as it remembers: rows
// that are marked deleted, or tombstones.
absl::StatusOr<std::map<RowKey, int64_t>> FindDeleted(VerifySide& replica, const VerifyTable& table,
                                                      const state::Schema& schema,
                                                      const std::string& group,
                                                      const std::vector<RowKey>& keys);

}  // namespace lockstep::verify
