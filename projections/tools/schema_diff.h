#pragma once

#include <string>
#include <vector>

#include "projections/decode/descriptors.h"

namespace lockstep::projections {

struct SchemaChange {
  bool breaking = false;
  std::string element;  // shop.Made.price
  std::string what;
};

// What changed between two descriptor sets, for consumers that hold the other one: added fields and
// values are compatible; removed, renamed, renumbered and retyped ones break.
std::vector<SchemaChange> DiffSchemas(const Descriptors& before, const Descriptors& after);

}  // namespace lockstep::projections
