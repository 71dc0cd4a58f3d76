#pragma once

#include <string>
#include <vector>

#include "postgres/identifier.h"

namespace lockstep::projections {

// What kind of text a mapping makes: decides the column type that `ddl` infers and `check` accepts.
enum class ValueKind {
  kUnknown,  // a JSON value without a descriptor: any scalar
  kText,
  kBool,
  kInt32,
  kInt64,  // also uint32
  kUInt64,
  kFloat,
  kDouble,
  kNumeric,
  kBytes,
  kTimestamp,
  kInterval,
  kJson,
  kConstant,  // of the file: tried against the live column
};

struct ValueType {
  ValueKind kind = ValueKind::kUnknown;
  bool array = false;
};

// One mapping into a column, for comparing it with the live table.
struct ColumnUse {
  ValueType type;
  std::string declared;  // `type:` of the mapping, or empty
  std::string constant;  // for kConstant
  std::string source;    // what is mapped, in words: "field duration_seconds (int64)"
  std::string place;     // file:line:column
  bool counted = false;  // added to the column
};

struct Column {
  std::string name;
  std::vector<ColumnUse> uses;
};

// A table as its projection declares it.
struct Table {
  std::string projection;
  std::string place;
  postgres::QualifiedName name;  // with the slot's suffix
  std::vector<Column> key;
  std::vector<Column> values;  // every column that some event maps, besides key and bookkeeping
  std::string version;         // empty for a counting table
  std::string updated_at;      // empty = none
  std::string deleted_at;      // empty = deletes are hard
  std::string aggregate;       // column that holds the row's aggregate; empty = none
  bool counting = false;
  bool merges = false;   // some event merges
  bool deletes = false;  // some event deletes
  bool hard_deletes() const { return deletes && deleted_at.empty(); }
  // Of a row: key, values, [deleted_at].
  size_t cells() const { return key.size() + values.size() + (deleted_at.empty() ? 0 : 1); }
};

}  // namespace lockstep::projections
