#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "projections/model/table.h"

namespace lockstep::projections {

struct LiveColumn {
  std::string type;       // without length: casting to varchar(5) would cut silently
  std::string full_type;  // as declared: varchar(5)
  std::string base_type;  // under a domain; else the type
  std::string element;    // of an array type; else empty
  char category = 'U';    // pg_type.typcategory
  bool not_null = false;
  bool generated = false;
  bool in_array = true;  // whether a parameter can be an array of it
  std::optional<std::string> default_sql;
};

// A table as the database has it.
struct LiveTable {
  bool exists = false;
  std::map<std::string, LiveColumn> columns;
  std::vector<std::vector<std::string>> unique_keys;  // sorted by name
};

absl::StatusOr<LiveTable> ReadLiveTable(postgres::Executor& on,
                                        const postgres::QualifiedName& name);

// The type that a value wants: what `ddl` prints and messages propose.
std::string InferredType(const ValueType& type);

// Whether every value of the mapping's type is one of the column's (a cast that can't fail, or that
// is the column's own business, such as text into uuid).
bool Fits(const ValueType& type, const LiveColumn& column);

}  // namespace lockstep::projections
