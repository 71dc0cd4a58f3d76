#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "projections/decode/mapping.h"
#include "projections/model/projection.h"
#include "projections/model/table.h"

namespace lockstep::projections {

// A projection in C++ with the place of its tables among the group's.
struct CodeProjection {
  std::shared_ptr<const Projection> projection;
  std::vector<CodeTable> tables;
  uint32_t first_table = 0;
};

// A message field that some mapping uses, to notice that it was renumbered or retyped.
struct UsedField {
  std::string message;
  std::string field;
  std::string numbers;
  std::string type;
  std::string place;
};

// Everything that a group's file says, compiled.
struct GroupPlan {
  std::string group;
  std::string state_schema;
  std::string table_suffix;
  std::string mapping;  // a hash of what decides how events become rows; empty = not known
  Mappings mappings;
  std::vector<Table> tables;
  std::vector<CodeProjection> code;
  std::vector<UsedField> fields;

  void AddTable(Table table) {
    mappings.cells.push_back(static_cast<uint32_t>(table.cells()));
    tables.push_back(std::move(table));
  }
};

}  // namespace lockstep::projections
