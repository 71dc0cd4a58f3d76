#include "projections/plan/column_fit.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace lockstep::projections {
namespace {

struct TypesOfKind {
  ValueKind kind;
  std::string_view inferred;
  std::vector<std::string_view> fitting;  // besides text
};

// Values of any other kind are text.
const std::vector<TypesOfKind> kTypes = {
    {ValueKind::kBool, "boolean", {"boolean"}},
    {ValueKind::kInt32, "integer", {"integer", "bigint", "numeric", "double precision"}},
    {ValueKind::kInt64, "bigint", {"bigint", "numeric"}},
    {ValueKind::kUInt64, "numeric(20,0)", {"numeric"}},
    {ValueKind::kFloat, "real", {"real", "double precision", "numeric"}},
    {ValueKind::kDouble, "double precision", {"double precision", "numeric"}},
    {ValueKind::kNumeric, "numeric", {"double precision", "numeric"}},
    {ValueKind::kBytes, "bytea", {"bytea"}},
    {ValueKind::kTimestamp,
     "timestamptz",
     {"timestamp with time zone", "timestamp without time zone", "date"}},
    {ValueKind::kInterval, "interval", {"interval"}},
    {ValueKind::kJson, "jsonb", {"jsonb", "json"}},
};

const TypesOfKind* Find(ValueKind kind) {
  const auto found = std::ranges::find(kTypes, kind, &TypesOfKind::kind);
  return found == kTypes.end() ? nullptr : &*found;
}

bool OneOf(std::string_view type, const std::vector<std::string_view>& types) {
  return std::ranges::find(types, type) != types.end();
}

bool IsText(std::string_view type) {
  return OneOf(type, {"text", "character varying", "bpchar", "character", "name", "citext"}) ||
         type.ends_with(".citext");
}

// The types of Postgres itself that are no text and that free text does not fit into.
bool IsStrict(std::string_view type) {
  return type == "smallint" || std::ranges::any_of(kTypes, [&](const TypesOfKind& types) {
           return OneOf(type, types.fitting);
         });
}

bool FitsScalar(ValueKind kind, std::string_view type) {
  if (IsText(type)) return kind != ValueKind::kBytes;
  if (const TypesOfKind* types = Find(kind)) return OneOf(type, types->fitting);
  // Into uuid, enums, inet, … free text goes as well: their own input decides.
  return kind != ValueKind::kText || !IsStrict(type);
}

}  // namespace

std::string InferredType(const ValueType& type) {
  const TypesOfKind* types = Find(type.kind);
  return std::string(types == nullptr ? "text" : types->inferred) + (type.array ? "[]" : "");
}

bool Fits(const ValueType& type, const LiveColumn& column) {
  if (type.array) return !column.element.empty() && FitsScalar(type.kind, column.element);
  if (!column.element.empty()) return type.kind == ValueKind::kConstant;
  return FitsScalar(type.kind, column.base_type);
}

}  // namespace lockstep::projections
