#include "projections/tools/ddl.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/text.h"
#include "projections/plan/live_table.h"

namespace lockstep::projections {
namespace {

// Names that need no quotes are easier to read without them.
std::string Name(const std::string& name) {
  const bool plain = !name.empty() && (name[0] == '_' || (name[0] >= 'a' && name[0] <= 'z')) &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
                     });
  return plain ? name : postgres::QuoteIdentifier(name);
}

std::string ConstantType(const std::string& text) {
  if (text == "true" || text == "false") return "boolean";
  int64_t number = 0;
  return ParseWhole(text, &number) ? "bigint" : "text";
}

std::string TypeOf(const Column& column) {
  std::string type;
  for (const ColumnUse& use : column.uses) {
    if (!use.declared.empty()) return use.declared;
    const bool constant = use.type.kind == ValueKind::kConstant;
    const std::string wanted = constant ? ConstantType(use.constant) : InferredType(use.type);
    // The widest integer wins; what is known wins over a constant's guess.
    if (type.empty() || (type == "integer" && wanted == "bigint")) type = wanted;
  }
  return type.empty() ? "text" : type;
}

std::string CreateTable(const Table& table) {
  std::vector<std::string> lines;
  std::vector<std::string> key;
  const auto add = [&](const std::string& name, const std::string& rest) {
    lines.push_back(fmt::format("  {} {}", Name(name), rest));
  };
  for (const Column& column : table.key) {
    key.push_back(Name(column.name));
    add(column.name, TypeOf(column) + " NOT NULL");
  }
  for (const Column& column : table.values) {
    std::string type = TypeOf(column);
    if (table.counting && type == "text") type = "bigint";
    if (table.counting && type == "integer") type = "bigint";  // counts outgrow what they count
    add(column.name, table.counting ? type + " NOT NULL DEFAULT 0" : type);
  }
  if (!table.version.empty()) add(table.version, "bigint NOT NULL");
  if (!table.updated_at.empty()) add(table.updated_at, "timestamptz NOT NULL");
  if (!table.deleted_at.empty()) add(table.deleted_at, "timestamptz");
  if (!table.aggregate.empty()) add(table.aggregate, "text NOT NULL");
  lines.push_back(fmt::format("  PRIMARY KEY ({})", fmt::join(key, ", ")));
  return fmt::format("CREATE TABLE {}.{} (\n{}\n);\n", Name(table.name.schema),
                     Name(table.name.name), fmt::join(lines, ",\n"));
}

}  // namespace

std::string CreateTables(const GroupPlan& plan) {
  std::string ddl;
  std::set<std::string> schemas;
  for (const Table& table : plan.tables) schemas.insert(table.name.schema);
  for (const std::string& schema : schemas) {
    ddl += fmt::format("CREATE SCHEMA IF NOT EXISTS {};\n", Name(schema));
  }
  for (const Table& table : plan.tables) ddl += "\n" + CreateTable(table);
  return ddl;
}

}  // namespace lockstep::projections
