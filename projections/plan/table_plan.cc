#include "projections/plan/table_plan.h"

#include <fmt/format.h>

#include <atomic>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::projections {
namespace {

using postgres::QuoteIdentifier;

// A parameter that carries one column of all rows.
struct Input {
  std::string name;  // in the unnest: k0, v3
  std::string type;  // of the column
  bool in_array = true;

  std::string Cast(int parameter) const {
    return fmt::format("${}::{}[]", parameter, in_array ? type : "text");
  }
  std::string Read(std::string_view from) const {
    return in_array ? fmt::format("{}.{}", from, name) : fmt::format("{}.{}::{}", from, name, type);
  }
};

// How the stored version must stand to the incoming one for a row to be written.
const char* Guard(bool overwrite) { return overwrite ? "<=" : "<"; }

class Planner {
 public:
  Planner(const Table& table, const LiveTable& live, const std::string& state_schema)
      : table_(table), live_(live), state_schema_(state_schema), id_(++plans_) {}

  absl::StatusOr<std::shared_ptr<const TablePlan>> Make() {
    for (size_t i = 0; i < table_.key.size(); ++i) {
      RETURN_IF_ERROR(AddInput(table_.key[i].name, fmt::format("k{}", i), &keys_));
    }
    for (size_t i = 0; i < table_.values.size(); ++i) {
      RETURN_IF_ERROR(AddInput(table_.values[i].name, fmt::format("v{}", i), &values_));
      const auto& fallback = live_.columns.at(table_.values[i].name).default_sql;
      defaults_.push_back(fallback.value_or("NULL"));
      plan_->has_default.push_back(fallback.has_value());
    }
    plan_->uuid_key = keys_.size() == 1 && keys_[0].type == "uuid";
    if (table_.counting) {
      plan_->count = {Name("count"), Count()};
      return plan_;
    }
    if (!table_.deleted_at.empty()) {
      RETURN_IF_ERROR(AddInput(table_.deleted_at, "deleted", &deleted_));
    }
    if (!table_.aggregate.empty()) {
      RETURN_IF_ERROR(AddInput(table_.aggregate, "owner", &owner_));
    }
    for (const bool overwrite : {false, true}) {
      const char* suffix = overwrite ? "_over" : "";
      plan_->write_whole[overwrite] = {Name("whole") + suffix, WriteWhole(overwrite)};
      plan_->write_any[overwrite] = {Name("any") + suffix, WriteAny(overwrite)};
      if (table_.hard_deletes()) {
        plan_->claim[overwrite] = {Name("claim") + suffix, Claim(overwrite)};
      }
    }
    plan_->stored = {Name("stored"), Stored()};
    if (table_.hard_deletes()) {
      plan_->claimed = {Name("claimed"), Claimed()};
      plan_->delete_rows = {Name("delete"), DeleteRows()};
    }
    return plan_;
  }

 private:
  absl::Status AddInput(const std::string& column, std::string name, std::vector<Input>* to) {
    const auto found = live_.columns.find(column);
    if (found == live_.columns.end()) {
      return postgres::SqlError(
          "42703", fmt::format("table {} has no column '{}'", table_.name.ToString(), column));
    }
    to->push_back({std::move(name), found->second.type, found->second.in_array});
    return absl::OkStatus();
  }

  std::string Name(std::string_view statement) const {
    return fmt::format("lockstep_projection_{}_{}", id_, statement);
  }

  // unnest($1::uuid[], …) AS u(k0, …), from `inputs` beginning at parameter `first`.
  static std::string Unnest(const std::vector<Input>& inputs, int first, bool ordinality) {
    std::vector<std::string> casts;
    std::vector<std::string> names;
    for (const Input& input : inputs) {
      casts.push_back(input.Cast(first++));
      names.push_back(input.name);
    }
    if (ordinality) names.emplace_back("n");
    return fmt::format("unnest({}){} AS u({})", fmt::join(casts, ", "),
                       ordinality ? " WITH ORDINALITY" : "", fmt::join(names, ", "));
  }

  // The row's key as one text, the same for equal keys.
  std::string KeyText(std::string_view from, bool input) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < keys_.size(); ++i) {
      parts.push_back(input ? keys_[i].Read(from)
                            : fmt::format("{}.{}", from, QuoteIdentifier(table_.key[i].name)));
    }
    if (parts.size() == 1) return parts[0] + "::text";
    return fmt::format("ROW({})::text", fmt::join(parts, ", "));
  }

  std::string KeyJoin(std::string_view target) const { return KeyJoin(target, keys_[0].Read("u")); }
  std::string KeyJoin(std::string_view target, const std::string& first) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < keys_.size(); ++i) {
      parts.push_back(fmt::format("{}.{} = {}", target, QuoteIdentifier(table_.key[i].name),
                                  i == 0 ? first : keys_[i].Read("u")));
    }
    return fmt::format("{}", fmt::join(parts, " AND "));
  }

  std::vector<std::string> KeyColumns() const { return Quoted(table_.key); }
  static std::vector<std::string> Quoted(const std::vector<Column>& columns) {
    std::vector<std::string> names;
    for (const Column& column : columns) names.push_back(QuoteIdentifier(column.name));
    return names;
  }

  std::vector<Input> RowInputs() const {
    std::vector<Input> inputs = keys_;
    inputs.push_back({"version", "bigint"});
    inputs.insert(inputs.end(), values_.begin(), values_.end());
    inputs.insert(inputs.end(), deleted_.begin(), deleted_.end());
    inputs.insert(inputs.end(), owner_.begin(), owner_.end());
    return inputs;
  }

  // The columns of the INSERT, with what each gets.
  std::string Target() const {
    std::vector<std::string> columns = KeyColumns();
    columns.push_back(QuoteIdentifier(table_.version));
    for (const std::string& value : Quoted(table_.values)) columns.push_back(value);
    if (!table_.deleted_at.empty()) columns.push_back(QuoteIdentifier(table_.deleted_at));
    if (!table_.aggregate.empty()) columns.push_back(QuoteIdentifier(table_.aggregate));
    if (!table_.updated_at.empty()) columns.push_back(QuoteIdentifier(table_.updated_at));
    return fmt::format("INSERT INTO {} AS t ({})", table_.name.Quoted(), fmt::join(columns, ", "));
  }

  std::string Select(const std::vector<std::string>& values) const {
    std::vector<std::string> columns;
    for (const Input& key : keys_) columns.push_back(key.Read("u"));
    columns.emplace_back("u.version");
    columns.insert(columns.end(), values.begin(), values.end());
    for (const Input& deleted : deleted_) columns.push_back(deleted.Read("u"));
    for (const Input& owner : owner_) columns.push_back(owner.Read("u"));
    if (!table_.updated_at.empty()) columns.emplace_back("now()");
    return fmt::format("SELECT {}", fmt::join(columns, ", "));
  }

  std::string OnConflict() const {
    std::vector<std::string> sets;
    const auto add = [&](const std::string& column) {
      if (column.empty()) return;
      sets.push_back(fmt::format("{0} = excluded.{0}", QuoteIdentifier(column)));
    };
    add(table_.version);
    add(table_.deleted_at);
    add(table_.aggregate);
    add(table_.updated_at);
    return fmt::format("ON CONFLICT ({}) DO UPDATE SET {}", fmt::join(KeyColumns(), ", "),
                       fmt::join(sets, ", "));
  }

  // A row belongs to its aggregate; one that has none yet (the column was added later) is adopted.
  std::string OwnerGuard() const {
    if (table_.aggregate.empty()) return "";
    return fmt::format(" AND (t.{0} IS NULL OR t.{0} = excluded.{0})",
                       QuoteIdentifier(table_.aggregate));
  }

  std::string WriteWhole(bool overwrite) const {
    std::vector<std::string> values;
    std::string sets;
    for (size_t i = 0; i < values_.size(); ++i) {
      values.push_back(values_[i].Read("u"));
      sets += fmt::format(", {0} = excluded.{0}", QuoteIdentifier(table_.values[i].name));
    }
    return fmt::format("{}\n{}\nFROM {}\n{}{}\nWHERE t.{} {} excluded.{}{}\nRETURNING {}", Target(),
                       Select(values), Unnest(RowInputs(), 1, false), OnConflict(), sets,
                       QuoteIdentifier(table_.version), Guard(overwrite),
                       QuoteIdentifier(table_.version), OwnerGuard(), KeyText("t", false));
  }

  // A value column: what the event brought, or nothing's default, or what is stored.
  std::string Choose(size_t i, std::string_view mask, std::string_view brought,
                     std::string_view stored, bool may_be_missing) const {
    std::string nothing = fmt::format("substr({}, {}, 1) = '1'", mask, kMaskFresh + 1);
    if (may_be_missing) {
      nothing += fmt::format(" OR {}.{} IS NULL", stored, QuoteIdentifier(table_.key[0].name));
    }
    if (!table_.deleted_at.empty()) {
      nothing += fmt::format(" OR ({}.{} IS NOT NULL AND substr({}, {}, 1) = '0')", stored,
                             QuoteIdentifier(table_.deleted_at), mask, kMaskKeep + 1);
    }
    return fmt::format(
        "CASE WHEN {0} IS NULL OR substr({0}, {1}, 1) = '1' THEN {2} WHEN {3} THEN {4} ELSE "
        "{5}.{6} "
        "END",
        mask, kMaskValues + i + 1, brought, nothing, defaults_[i], stored,
        QuoteIdentifier(table_.values[i].name));
  }

  // In DO UPDATE only the table's columns can be seen; what else is known of the row is looked up
  // by its key. (A join would decide by the snapshot; this decides by the row that is locked.)
  // A whole row has no mask: nothing is looked up for it. The NULL in its place keeps the join from
  // going through the index.
  std::string WriteAny(bool overwrite) const {
    std::vector<Input> inputs = RowInputs();
    inputs.push_back({"first", "bigint"});
    inputs.push_back({"mask", "text"});
    const std::string flags =
        fmt::format("(SELECT by_key FROM flags) ->> {}", KeyText("excluded", false));
    const std::string masked_key =
        fmt::format("CASE WHEN u.mask IS NOT NULL THEN {} END", keys_[0].Read("u"));
    std::vector<std::string> values;
    std::vector<std::string> updates;
    for (size_t i = 0; i < values_.size(); ++i) {
      values.push_back(Choose(i, "u.mask", values_[i].Read("u"), "s", true));
      updates.push_back(Choose(i, "f.mask",
                               fmt::format("excluded.{}", QuoteIdentifier(table_.values[i].name)),
                               "t", false));
    }
    std::string sets;
    if (!values_.empty()) {
      sets = fmt::format(
          ",\n({}) = (SELECT {}\n  FROM (SELECT split_part({}, ':', 2) AS mask OFFSET 0) AS f)",
          fmt::join(Quoted(table_.values), ", "), fmt::join(updates, ",\n    "), flags);
    }
    return fmt::format(
        "WITH flags AS MATERIALIZED (\n"
        "  SELECT jsonb_object_agg({}, u.first || ':' || u.mask) AS by_key FROM {}\n"
        "   WHERE u.mask IS NOT NULL)\n"
        "{}\n{}\nFROM {}\nLEFT JOIN {} AS s ON {}\nORDER BY u.n\n{}{}\n"
        "WHERE t.{} {} coalesce(split_part({}, ':', 1)::bigint, excluded.{}){}\nRETURNING {}",
        KeyText("u", true), Unnest(inputs, 1, false), Target(), Select(values),
        Unnest(inputs, 1, true), table_.name.Quoted(), KeyJoin("s", masked_key), OnConflict(), sets,
        QuoteIdentifier(table_.version), Guard(overwrite), flags, QuoteIdentifier(table_.version),
        OwnerGuard(), KeyText("t", false));
  }

  std::string Stored() const {
    return fmt::format(
        "SELECT u.n, {}, t.{}, {}\nFROM {}\nJOIN {} AS t ON {}\nORDER BY u.n\nFOR UPDATE OF t",
        KeyText("t", false), QuoteIdentifier(table_.version),
        table_.aggregate.empty() ? "NULL" : "t." + QuoteIdentifier(table_.aggregate),
        Unnest(keys_, 1, true), table_.name.Quoted(), KeyJoin("t"));
  }

  std::string Versions() const { return QuoteIdentifier(state_schema_) + ".row_versions"; }
  std::string Projection() const {
    std::string quoted = "'";
    for (const char c : table_.projection) quoted += c == '\'' ? "''" : std::string(1, c);
    return quoted + "'";
  }

  std::string Claim(bool overwrite) const {
    std::vector<Input> inputs = keys_;
    inputs.push_back({"version", "bigint"});
    inputs.push_back({"first", "bigint"});
    inputs.push_back({"gone", "boolean"});
    const bool owned = !table_.aggregate.empty();
    if (owned) inputs.push_back({"owner", "text"});
    return fmt::format(
        "INSERT INTO {} AS r (consumer_group, generation, projection, row_key, version,"
        " first_version, deleted_at, aggregate)\n"
        "SELECT $1, $2::bigint, {}, {}, u.version, u.first, CASE WHEN u.gone THEN now() END, {}\n"
        "FROM {}\n"
        "ON CONFLICT (consumer_group, generation, projection, row_key) DO UPDATE\n"
        "SET version = excluded.version, first_version = excluded.first_version,"
        " deleted_at = excluded.deleted_at, aggregate = excluded.aggregate\n"
        "WHERE r.version {} excluded.first_version{}\nRETURNING r.row_key",
        Versions(), Projection(), KeyText("u", true), owned ? "u.owner" : "NULL",
        Unnest(inputs, 3, false), Guard(overwrite),
        owned ? " AND (r.aggregate IS NULL OR r.aggregate = excluded.aggregate)" : "");
  }

  std::string Claimed() const {
    return fmt::format(
        "SELECT u.n, r.row_key, r.version, r.aggregate\nFROM {}\n"
        "JOIN {} AS r ON r.consumer_group = $1"
        " AND r.generation = $2::bigint AND r.projection = {} AND r.row_key = {}\n"
        "ORDER BY u.n\nFOR UPDATE OF r",
        Unnest(keys_, 3, true), Versions(), Projection(), KeyText("u", true));
  }

  std::string DeleteRows() const {
    std::vector<Input> inputs = keys_;
    inputs.push_back({"version", "bigint"});
    return fmt::format("DELETE FROM {} AS t USING {}\nWHERE {} AND t.{} <= u.version",
                       table_.name.Quoted(), Unnest(inputs, 1, false), KeyJoin("t"),
                       QuoteIdentifier(table_.version));
  }

  // Postgres sums: exact for numbers of any size, and equal keys are its own to judge.
  std::string Count() const {
    std::vector<Input> inputs = keys_;
    inputs.insert(inputs.end(), values_.begin(), values_.end());
    std::vector<std::string> columns = KeyColumns();
    std::vector<std::string> selected;
    std::vector<std::string> grouped;
    std::vector<std::string> sets;
    for (const Input& key : keys_) grouped.push_back(key.Read("u"));
    selected = grouped;
    for (size_t i = 0; i < values_.size(); ++i) {
      const std::string column = QuoteIdentifier(table_.values[i].name);
      columns.push_back(column);
      selected.push_back(fmt::format("coalesce(sum({}), '0')", values_[i].Read("u")));
      sets.push_back(fmt::format("{0} = coalesce(t.{0}, '0') + excluded.{0}", column));
    }
    if (!table_.updated_at.empty()) {
      const std::string column = QuoteIdentifier(table_.updated_at);
      columns.push_back(column);
      selected.emplace_back("now()");
      sets.push_back(fmt::format("{0} = excluded.{0}", column));
    }
    return fmt::format(
        "INSERT INTO {} AS t ({})\nSELECT {}\nFROM {}\nGROUP BY {}\nORDER BY {}\n"
        "ON CONFLICT ({}) DO UPDATE SET {}",
        table_.name.Quoted(), fmt::join(columns, ", "), fmt::join(selected, ", "),
        Unnest(inputs, 1, false), fmt::join(grouped, ", "), fmt::join(grouped, ", "),
        fmt::join(KeyColumns(), ", "), fmt::join(sets, ", "));
  }

  static inline std::atomic<int> plans_ = 0;  // statement names are unique per connection

  const Table& table_;
  const LiveTable& live_;
  const std::string& state_schema_;
  const int id_;
  std::shared_ptr<TablePlan> plan_ = std::make_shared<TablePlan>();
  std::vector<Input> keys_;
  std::vector<Input> values_;
  std::vector<Input> deleted_;  // none or one
  std::vector<Input> owner_;    // none or one
  std::vector<std::string> defaults_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TablePlan>> MakePlan(const Table& table, const LiveTable& live,
                                                          const std::string& state_schema) {
  if (!live.exists) {
    return postgres::SqlError("42P01",
                              fmt::format("table {} does not exist", table.name.ToString()));
  }
  if (table.hard_deletes() && state_schema.empty()) {
    return FailedPrecondition(
        "table {} is deleted from hard, which needs state_schema (where tombstones live)",
        table.name.ToString());
  }
  return Planner(table, live, state_schema).Make();
}

}  // namespace lockstep::projections
