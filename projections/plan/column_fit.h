#pragma once

#include <string>

#include "projections/model/table.h"
#include "projections/plan/live_table.h"

namespace lockstep::projections {

// The type that a value wants: what `ddl` prints and messages propose.
std::string InferredType(const ValueType& type);

// Whether every value of the mapping's type is one of the column's (a cast that can't fail, or that
// is the column's own business, such as text into uuid).
bool Fits(const ValueType& type, const LiveColumn& column);

}  // namespace lockstep::projections
