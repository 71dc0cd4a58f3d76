#include "projections/plan/table_plan.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "projections/plan/table_sql.h"

namespace lockstep::projections {
namespace {

using postgres::FillNames;
using postgres::QuoteIdentifier;

// A parameter that carries one column of all rows.
struct Input {
  std::string name;  // in the unnest: k0, v3; empty = it is no parameter
  std::string type;  // of the column
  bool in_array = true;
  std::string column;  // that it goes to, quoted; empty = none
  std::string value;   // what the column gets, where that is not the input as it is

  std::string Cast(int parameter) const {
    return fmt::format("${}::{}[]", parameter, in_array ? type : "text");
  }
  std::string Read() const {
    if (!value.empty()) return value;
    return in_array ? fmt::format("u.{}", name) : fmt::format("u.{}::{}", name, type);
  }
  std::string TakeNew() const { return fmt::format("{0} = excluded.{0}", column); }
};

using Inputs = std::vector<Input>;

// The texts of all inputs that have a `member` (&Input::column, …).
template <typename Text>
std::vector<std::string> Each(const Inputs& inputs, const Text& text,
                              std::string Input::*member = &Input::column) {
  std::vector<std::string> texts;
  for (const Input& input : inputs) {
    if (!(input.*member).empty()) texts.push_back(std::invoke(text, input));
  }
  return texts;
}

std::string List(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

Inputs operator+(Inputs inputs, const Inputs& more) {
  inputs.insert(inputs.end(), more.begin(), more.end());
  return inputs;
}

// unnest($1::uuid[], …) AS u(k0, …), from parameter `first` on. `numbered`: with n, the position.
std::string Unnest(const Inputs& inputs, int first, bool numbered) {
  const auto cast = [&](const Input& input) { return input.Cast(first++); };
  return fmt::format("unnest({}){} AS u({}{})", List(Each(inputs, cast, &Input::name)),
                     numbered ? " WITH ORDINALITY" : "",
                     List(Each(inputs, &Input::name, &Input::name)), numbered ? ", n" : "");
}

// How the stored version must stand to the incoming one for a row to be written.
const char* Guard(bool overwrite) { return overwrite ? "<=" : "<"; }

class Planner {
 public:
  Planner(const Table& table, const LiveTable& live, const std::string& state_schema)
      : table_(table),
        live_(live),
        state_schema_(state_schema),
        id_(++plans_),
        version_{{"version", "bigint", true, QuoteIdentifier(table.version)}} {}

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
    const Inputs updated_at = {{"", "", true, QuoteIdentifier(table_.updated_at), "now()"}};
    if (table_.counting) {
      if (!table_.updated_at.empty()) bookkeeping_ = updated_at;
      plan_->count = Count();
      return plan_;
    }
    if (!table_.deleted_at.empty()) {
      RETURN_IF_ERROR(AddInput(table_.deleted_at, "deleted", &bookkeeping_));
    }
    if (!table_.aggregate.empty()) {
      RETURN_IF_ERROR(AddInput(table_.aggregate, "owner", &bookkeeping_));
    }
    if (!table_.updated_at.empty()) bookkeeping_ = bookkeeping_ + updated_at;
    for (const bool overwrite : {false, true}) {
      plan_->write_whole[overwrite] = WriteWhole(overwrite);
      plan_->write_any[overwrite] = WriteAny(overwrite);
    }
    plan_->stored = Fill("stored", table_sql::kStored, {keys_});
    const Inputs owner = table_.aggregate.empty() ? Inputs() : Inputs{{"owner", "text"}};
    const Inputs gone = keys_ + version_ + owner;
    plan_->remove = table_.deleted_at.empty()
                        ? Fill("delete", table_sql::kDelete, {gone})
                        : Fill("bury", table_sql::kBury, {gone, 1, false, Burial()});
    if (!table_.hard_deletes()) return plan_;
    plan_->forget = Fill("forget", table_sql::kForget, {gone, kAfterGeneration});
    const Inputs claim =
        keys_ + version_ + Inputs{{"first", "bigint"}, {"gone", "boolean"}} + owner;
    plan_->claim[0] = Fill("claim", table_sql::kClaim, {claim, kAfterGeneration, false});
    plan_->claim[1] = Fill("claim_over", table_sql::kClaim, {claim, kAfterGeneration, true});
    plan_->claimed = Fill("claimed", table_sql::kClaimed, {keys_, kAfterGeneration});
    return plan_;
  }

 private:
  static constexpr int kAfterGeneration = 3;  // $1 is the group, $2 the generation

  // What differs from statement to statement.
  struct Pieces {
    Inputs inputs;
    int first = 1;  // parameter
    bool overwrite = false;
    std::vector<std::string> sets = {};
  };

  PlannedStatement Fill(std::string_view name, std::string_view sql, const Pieces& pieces) const {
    const std::string aggregate = QuoteIdentifier(table_.aggregate);
    const bool owned = !table_.aggregate.empty();
    const std::string first_key = keys_[0].Read();
    // A row belongs to its aggregate; one that has none yet (the column was added later) is
    // adopted.
    const auto owner_guard = [&](const std::string& stored, const std::string& comes) {
      return owned ? fmt::format(" AND ({0} IS NULL OR {0} = {1})", stored, comes) : "";
    };
    return {fmt::format("lockstep_projection_{}_{}", id_, name),
            FillNames(
                sql,
                {{"table", table_.name.Quoted()},
                 {"columns", List(Each(pieces.inputs, &Input::column))},
                 {"values", List(Each(pieces.inputs, &Input::Read))},
                 {"rows", Unnest(pieces.inputs, pieces.first, false)},
                 {"numbered_rows", Unnest(pieces.inputs, pieces.first, true)},
                 {"sets", List(pieces.sets)},
                 {"key_columns", List(Each(keys_, &Input::column))},
                 {"key_inputs", List(Each(keys_, &Input::Read))},
                 {"key", KeyOf("t")},
                 {"input_key", KeyText(Each(keys_, &Input::Read))},
                 {"join", KeyJoin("t", first_key)},
                 {"masked_join",
                  KeyJoin("s", fmt::format("CASE WHEN u.mask IS NOT NULL THEN {} END", first_key))},
                 {"flags", Flags()},
                 {"version", version_[0].column},
                 {"guard", Guard(pieces.overwrite)},
                 {"aggregate", owned ? "t." + aggregate : "NULL"},
                 {"owner", owned ? "u.owner" : "NULL"},
                 {"owner_guard", owner_guard("t." + aggregate, "excluded." + aggregate)},
                 {"input_owner_guard", owner_guard("t." + aggregate, "u.owner")},
                 {"claim_owner_guard", owner_guard("r.aggregate", "excluded.aggregate")},
                 {"forget_owner_guard", owner_guard("r.aggregate", "u.owner")},
                 {"deleted_at", QuoteIdentifier(table_.deleted_at)},
                 {"row_versions", QuoteIdentifier(state_schema_) + ".row_versions"},
                 {"projection", postgres::QuoteLiteral(table_.projection)}})};
  }

  absl::Status AddInput(const std::string& column, std::string name, Inputs* to) {
    const auto found = live_.columns.find(column);
    if (found == live_.columns.end()) {
      return postgres::SqlError(
          "42703", fmt::format("table {} has no column '{}'", table_.name.ToString(), column));
    }
    to->push_back(
        {std::move(name), found->second.type, found->second.in_array, QuoteIdentifier(column)});
    return absl::OkStatus();
  }

  // A key as one text, the same for equal keys.
  static std::string KeyText(const std::vector<std::string>& parts) {
    return parts.size() == 1 ? parts[0] + "::text" : "ROW(" + List(parts) + ")::text";
  }
  std::string KeyOf(std::string_view row) const {
    const auto part = [&](const Input& key) { return fmt::format("{}.{}", row, key.column); };
    return KeyText(Each(keys_, part));
  }
  // `first`: what the first column of the key is compared with.
  std::string KeyJoin(std::string_view row, const std::string& first) const {
    const auto equal = [&](const Input& key) {
      return fmt::format("{}.{} = {}", row, key.column, &key == &keys_[0] ? first : key.Read());
    };
    return fmt::format("{}", fmt::join(Each(keys_, equal), " AND "));
  }

  // A row that is marked deleted as if no version of it had ever come.
  std::vector<std::string> Burial() const {
    std::vector<std::string> sets = {version_[0].column + " = 0"};
    for (const std::string& column : {table_.deleted_at, table_.updated_at}) {
      if (!column.empty()) sets.push_back(QuoteIdentifier(column) + " = now()");
    }
    return sets;
  }

  // The inputs of a row, each with its column.
  Inputs RowWith(const Inputs& values) const { return keys_ + version_ + values + bookkeeping_; }

  PlannedStatement WriteWhole(bool overwrite) const {
    return Fill(
        overwrite ? "whole_over" : "whole", table_sql::kWriteWhole,
        {RowWith(values_), 1, overwrite, Each(version_ + values_ + bookkeeping_, &Input::TakeNew)});
  }

  // A value column: what the event brought, or nothing's default, or what is stored.
  std::string Choose(size_t i, std::string_view mask, const std::string& brought,
                     std::string_view stored, bool may_be_missing) const {
    std::string nothing = fmt::format("substr({}, {}, 1) = '1'", mask, kMaskFresh + 1);
    if (may_be_missing) nothing += fmt::format(" OR {}.{} IS NULL", stored, keys_[0].column);
    if (!table_.deleted_at.empty()) {
      nothing += fmt::format(" OR ({}.{} IS NOT NULL AND substr({}, {}, 1) = '0')", stored,
                             QuoteIdentifier(table_.deleted_at), mask, kMaskKeep + 1);
    }
    return fmt::format(
        "CASE WHEN {0} IS NULL OR substr({0}, {1}, 1) = '1' THEN {2} WHEN {3} THEN {4} "
        "ELSE {5}.{6} END",
        mask, kMaskValues + i + 1, brought, nothing, defaults_[i], stored, values_[i].column);
  }

  // In an update: first version and mask of the row.
  std::string Flags() const { return "(SELECT by_key FROM flags) ->> " + KeyOf("excluded"); }

  PlannedStatement WriteAny(bool overwrite) const {
    Inputs values = values_;
    std::vector<std::string> updates;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].value = Choose(i, "u.mask", values_[i].Read(), "s", true);
      updates.push_back(Choose(i, "f.mask", "excluded." + values_[i].column, "t", false));
    }
    std::vector<std::string> sets = Each(version_ + bookkeeping_, &Input::TakeNew);
    if (!values.empty()) {
      sets.push_back(fmt::format(
          "\n({}) = (SELECT {}\n  FROM (SELECT split_part({}, ':', 2) AS mask OFFSET 0) AS f)",
          List(Each(values, &Input::column)), fmt::join(updates, ",\n    "), Flags()));
    }
    return Fill(overwrite ? "any_over" : "any", table_sql::kWriteAny,
                {RowWith(values) + Inputs{{"first", "bigint"}, {"mask", "text"}}, 1, overwrite,
                 std::move(sets)});
  }

  PlannedStatement Count() const {
    Inputs values = values_;
    std::vector<std::string> sets;
    for (Input& value : values) {
      value.value = fmt::format("coalesce(sum({}), '0')", value.Read());
      sets.push_back(fmt::format("{0} = coalesce(t.{0}, '0') + excluded.{0}", value.column));
    }
    for (const Input& updated_at : bookkeeping_) sets.push_back(updated_at.TakeNew());
    return Fill("count", table_sql::kCount,
                {keys_ + values + bookkeeping_, 1, false, std::move(sets)});
  }

  static inline std::atomic<int> plans_ = 0;  // statement names are unique per connection

  const Table& table_;
  const LiveTable& live_;
  const std::string& state_schema_;
  const int id_;
  std::shared_ptr<TablePlan> plan_ = std::make_shared<TablePlan>();
  const Inputs version_;  // one
  Inputs keys_;
  Inputs values_;
  Inputs bookkeeping_;  // [deleted_at], [aggregate], [updated_at]
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
