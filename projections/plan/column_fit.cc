#include "projections/plan/column_fit.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace lockstep::projections {
namespace {

bool OneOf(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool IsText(std::string_view type) {
  return OneOf(type, {"text", "character varying", "bpchar", "character", "name", "citext"}) ||
         type.ends_with(".citext");
}

// The types of Postgres itself that are no text and that free text does not fit into.
bool IsStrict(std::string_view type) {
  return OneOf(type, {"smallint", "integer", "bigint", "numeric", "real", "double precision",
                      "boolean", "bytea", "jsonb", "json", "interval", "date",
                      "timestamp with time zone", "timestamp without time zone"});
}

bool FitsScalar(ValueKind kind, std::string_view type) {
  if (IsText(type)) return kind != ValueKind::kBytes;
  switch (kind) {
    case ValueKind::kInt32:
      return OneOf(type, {"integer", "bigint", "numeric", "double precision"});
    case ValueKind::kInt64:
      return OneOf(type, {"bigint", "numeric"});
    case ValueKind::kUInt64:
      return type == "numeric";
    case ValueKind::kFloat:
      return OneOf(type, {"real", "double precision", "numeric"});
    case ValueKind::kDouble:
    case ValueKind::kNumeric:
      return OneOf(type, {"double precision", "numeric"});
    case ValueKind::kBool:
      return type == "boolean";
    case ValueKind::kBytes:
      return type == "bytea";
    case ValueKind::kTimestamp:
      return OneOf(type, {"timestamp with time zone", "timestamp without time zone", "date"});
    case ValueKind::kInterval:
      return type == "interval";
    case ValueKind::kJson:
      return OneOf(type, {"jsonb", "json"});
    case ValueKind::kText:
      return !IsStrict(type);  // uuid, enums, inet: their own input decides
    case ValueKind::kUnknown:
    case ValueKind::kConstant:
      break;
  }
  return true;
}

std::string ScalarType(ValueKind kind) {
  switch (kind) {
    case ValueKind::kBool:
      return "boolean";
    case ValueKind::kInt32:
      return "integer";
    case ValueKind::kInt64:
      return "bigint";
    case ValueKind::kUInt64:
      return "numeric(20,0)";
    case ValueKind::kFloat:
      return "real";
    case ValueKind::kDouble:
      return "double precision";
    case ValueKind::kNumeric:
      return "numeric";
    case ValueKind::kBytes:
      return "bytea";
    case ValueKind::kTimestamp:
      return "timestamptz";
    case ValueKind::kInterval:
      return "interval";
    case ValueKind::kJson:
      return "jsonb";
    case ValueKind::kUnknown:
    case ValueKind::kText:
    case ValueKind::kConstant:
      break;
  }
  return "text";
}

}  // namespace

std::string InferredType(const ValueType& type) {
  return ScalarType(type.kind) + (type.array ? "[]" : "");
}

bool Fits(const ValueType& type, const LiveColumn& column) {
  if (type.array) return !column.element.empty() && FitsScalar(type.kind, column.element);
  if (!column.element.empty()) return type.kind == ValueKind::kConstant;
  return FitsScalar(type.kind, column.base_type);
}

bool Countable(const LiveColumn& column) {
  return column.category == 'N' || column.category == 'T';
}

bool IsTime(const LiveColumn& column) { return column.category == 'D'; }

}  // namespace lockstep::projections
