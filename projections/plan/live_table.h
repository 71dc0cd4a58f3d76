#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

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

// `session`: a postgres::Connection or a postgres::Transaction.
template <class Session>
absl::StatusOr<LiveTable> ReadLiveTable(Session& session, const postgres::QualifiedName& name);

}  // namespace lockstep::projections
