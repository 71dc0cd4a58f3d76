#include "projections/testing/random_schema.h"

#include <fmt/format.h>

namespace lockstep::projections {
namespace {

using Type = RandomColumn::Type;

constexpr const char* kWords[] = {"plain", "",     "it's", "a\"b",      "c\\d", "{x,y}",
                                  "(p,q)", "NULL", "ünï",  "two words", "now",  "\t"};
constexpr const char* kArrayWords[] = {"a", "bee", "sea", "dee"};

std::string SqlType(Type type) {
  switch (type) {
    case Type::kText:
      return "text";
    case Type::kBigint:
      return "bigint";
    case Type::kBoolean:
      return "boolean";
    case Type::kNumeric:
      return "numeric";
    case Type::kJsonb:
      return "jsonb";
    case Type::kTextArray:
      break;
  }
  return "text[]";
}

std::string FieldType(Type type) {
  switch (type) {
    case Type::kBigint:
      return "optional int64";
    case Type::kBoolean:
      return "optional bool";
    case Type::kTextArray:
      return "repeated string";
    default:
      return "optional string";
  }
}

}  // namespace

std::string RandomColumn::RandomValue(Type type, Dice& dice) {
  switch (type) {
    case Type::kText:
      return kWords[dice.Pick(std::size(kWords))];
    case Type::kBigint:
      return fmt::format("{}", static_cast<int64_t>(dice.Bits()));
    case Type::kBoolean:
      return dice.Chance(50) ? "true" : "false";
    case Type::kNumeric:
      return fmt::format("{}.{}0", dice.Pick(1000), dice.Pick(10));
    case Type::kJsonb:
      return fmt::format(R"({{"a": [{}, "x"], "b": {}}})", dice.Pick(100), dice.Chance(50));
    case Type::kTextArray:
      break;
  }
  return fmt::format("{{{},{}}}", kArrayWords[dice.Pick(4)], kArrayWords[dice.Pick(4)]);
}

RandomSchema::RandomSchema(int table, Dice& dice) : number(table) {
  protobuf = dice.Chance(50);
  keys = 1 + dice.Pick(2);
  uuid_key = dice.Chance(40);
  const bool deletes = dice.Chance(60);
  soft = deletes && dice.Chance(50);
  counts = dice.Chance(50);
  owned = dice.Chance(40);
  AddColumns(dice);
  AddTypes(deletes, dice);
}

void RandomSchema::AddColumns(Dice& dice) {
  const int count = 1 + dice.Pick(6);
  for (int i = 0; i < count; ++i) {
    RandomColumn column;
    column.name = fmt::format("c{}", i);
    column.type = static_cast<Type>(dice.Pick(6));
    if (dice.Chance(25)) column.default_value = RandomColumn::RandomValue(column.type, dice);
    // Without a default, NOT NULL forbids soft deletes of unknown rows: check refuses that.
    column.not_null = dice.Chance(40) && (!soft || column.default_value.has_value());
    columns.push_back(std::move(column));
  }
}

void RandomSchema::AddTypes(bool deletes, Dice& dice) {
  const int count = 2 + dice.Pick(3);
  for (int i = 0; i < count; ++i) {
    EventType type;
    type.kind = i == 0              ? PlainEvent::Kind::kReplace
                : i == 1 && deletes ? PlainEvent::Kind::kDelete
                : dice.Chance(70)   ? PlainEvent::Kind::kMerge
                                    : PlainEvent::Kind::kReplace;
    for (size_t column = 0; column < columns.size(); ++column) {
      const bool required = columns[column].not_null && !columns[column].default_value;
      if (type.kind == PlainEvent::Kind::kDelete) {
        if (soft && dice.Chance(30)) type.columns.push_back(column);
      } else if (required || i == 0 || dice.Chance(60)) {
        type.columns.push_back(column);
      }
    }
    // At least one column per event that is to write something.
    if (type.columns.empty() && type.kind != PlainEvent::Kind::kDelete) type.columns.push_back(0);
    types.push_back(std::move(type));
  }
}

std::string RandomSchema::Table() const { return fmt::format("rnd.t{}", number); }

std::string RandomSchema::Ddl() const {
  std::string ddl =
      fmt::format("CREATE TABLE {} (k0 {} NOT NULL", Table(), uuid_key ? "uuid" : "text");
  if (keys == 2) ddl += ", k1 bigint NOT NULL";
  for (const RandomColumn& column : columns) {
    ddl += fmt::format(", {} {}{}", column.name, SqlType(column.type),
                       column.not_null ? " NOT NULL" : "");
    if (column.default_value) {
      std::string quoted;
      for (const char c : *column.default_value) quoted += c == '\'' ? "''" : std::string(1, c);
      ddl += fmt::format(" DEFAULT '{}'", quoted);
    }
  }
  ddl += ", version bigint NOT NULL, changed timestamptz NOT NULL";
  if (owned) ddl += ", owner text NOT NULL";
  if (soft) ddl += ", gone timestamptz";
  ddl += fmt::format(", PRIMARY KEY (k0{}));\n", keys == 2 ? ", k1" : "");
  return ddl + fmt::format("CREATE TABLE {}_count (bucket int PRIMARY KEY, n bigint, d bigint);\n",
                           Table());
}

std::string RandomSchema::Proto() const {
  if (!protobuf) return "";
  std::string proto = "syntax = \"proto3\"; package rnd;\n";
  for (size_t i = 0; i < types.size(); ++i) {
    proto += fmt::format(
        "message E{} {{ string k0 = 1; int64 k1 = 2; int32 bucket = 3; "
        "int64 delta = 4;",
        i);
    for (size_t column = 0; column < columns.size(); ++column) {
      proto += fmt::format(" {} {} = {};", FieldType(columns[column].type), columns[column].name,
                           10 + column);
    }
    proto += "}\n";
  }
  return proto;
}

std::string RandomSchema::Yaml() const {
  std::string yaml = fmt::format("group: random{}\nsubscription: random\n", number);
  if (protobuf) yaml += "descriptors: %DESCRIPTORS%\n";
  yaml += fmt::format("projections:\n  - name: rows{}\n    table: {}\n", number, Table());
  yaml += keys == 2 ? "    key: [k0, k1]\n" : "    key: k0\n";
  yaml += "    version: version\n    updated_at: changed\n";
  if (soft) yaml += "    deleted_at: gone\n";
  if (owned) yaml += "    aggregate: owner\n";
  yaml += "    events:\n";
  for (size_t i = 0; i < types.size(); ++i) {
    const EventType& type = types[i];
    yaml += fmt::format("      E{}:\n        {}:\n", i,
                        type.kind == PlainEvent::Kind::kReplace ? "replace"
                        : type.kind == PlainEvent::Kind::kMerge ? "merge"
                                                                : "delete");
    for (const size_t column : type.columns) {
      const RandomColumn& c = columns[column];
      std::string extra;
      if (protobuf && (c.type == Type::kNumeric || c.type == Type::kJsonb)) {
        extra = fmt::format(", type: {}", SqlType(c.type));
      }
      if (c.type == Type::kTextArray) {
        extra = protobuf ? ", omit_default: true" : ", as: array";
      }
      if (!protobuf && c.type == Type::kJsonb) extra = ", as: jsonb";
      yaml += fmt::format("          {}: {{field: {}{}}}\n", c.name, c.name, extra);
    }
  }
  if (counts) {
    yaml += fmt::format("  - name: counts{0}\n    table: {1}_count\n    key: bucket\n    events:\n",
                        number, Table());
    for (size_t i = 0; i < types.size(); ++i) {
      yaml += fmt::format("      E{}: {{increment: {{n: {{value: 1}}, d: delta}}}}\n", i);
    }
  }
  return yaml;
}

std::string RandomSchema::Query() const {
  std::string sql = "SELECT k0::text";
  if (keys == 2) sql += ", k1::text";
  for (const RandomColumn& column : columns) sql += fmt::format(", {}::text", column.name);
  sql += soft ? ", (gone IS NOT NULL)::text" : ", 'false'";
  return sql + fmt::format(", version FROM {}", Table());
}

}  // namespace lockstep::projections
