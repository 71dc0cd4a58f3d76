#pragma once

#include <string>

#include "absl/status/status.h"
#include "projections/decode/mapping.h"

namespace lockstep::projections {

// Whether snapshots of that event type are taken, by every table that names it.
absl::Status TakesSnapshots(const Mappings& mappings, const std::string& type, int schema_version);

}  // namespace lockstep::projections
