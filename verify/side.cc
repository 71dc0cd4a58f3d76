#include "verify/side.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "verify/session.h"

namespace lockstep::verify {
namespace {

// Each of these has a parameter: AskReadOnly.
constexpr std::string_view kTypes = R"(
SELECT n, format_type(t.oid, -1) AS type, t.typcategory AS category
  FROM (SELECT {types} FROM (SELECT $1::int) AS one LEFT JOIN {from} AS r ON false) AS k
 CROSS JOIN LATERAL (VALUES {rows}) AS v (n, type)
  JOIN pg_type u ON u.oid = v.type
  JOIN pg_type t ON t.oid = CASE WHEN u.typtype = 'd' THEN u.typbasetype ELSE u.oid END
 ORDER BY n)";

constexpr std::string_view kCount = R"(
SELECT count(*) AS rows, count(*) FILTER (WHERE {nulls}) AS nulls,
       count(*) FILTER (WHERE v IS NULL) AS unversioned
  FROM {rows} AS t WHERE $1::int = 1)";

constexpr std::string_view kSorted = R"(
EXPLAIN SELECT {keys} FROM {rows} AS t WHERE $1::int = 1 ORDER BY {keys} LIMIT 10000)";

// A documented digest of a text, so that servers of other versions and machines agree.
constexpr std::string_view kSummaries = R"(
SELECT bucket, count(*) AS rows, count(*) FILTER (WHERE v IS NULL) AS unversioned,
       bit_xor(('x' || encode(substr(sha256(convert_to(ROW({texts}, v)::text, 'UTF8')), 1, 8),
                              'hex'))::bit(64)::bigint) AS hash
  FROM (SELECT {bucket} AS bucket, {keys}, v FROM {rows} AS t WHERE {range}) AS t
 GROUP BY bucket ORDER BY bucket)";

constexpr std::string_view kSplit = R"(
SELECT {named_texts}
  FROM (SELECT {keys}, row_number() OVER (ORDER BY {keys}) AS n FROM {rows} AS t WHERE {range}) AS t
 WHERE n % {step} = 0 ORDER BY n)";

constexpr std::string_view kAfter = R"(
SELECT {named_texts}
  FROM (SELECT {keys} FROM {rows} AS t WHERE {range} ORDER BY {keys} OFFSET {step} LIMIT 1) AS t)";

constexpr std::string_view kEstimate = R"(
EXPLAIN (FORMAT JSON) SELECT FROM {rows} AS t WHERE {range})";

constexpr std::string_view kLeast = R"(
SELECT {named_texts} FROM {wanted} AS t ORDER BY {ordered} LIMIT 1)";

constexpr std::string_view kList = R"(
SELECT {named_texts}, t.* FROM {rows} AS t WHERE {range})";

constexpr std::string_view kFind = R"(
SELECT {named_texts}, t.* FROM {wanted} AS w JOIN {rows} AS t ON {matched})";

// Rows can be wide without warning: what is read at once is bounded, as a backfill's pages are.
constexpr std::string_view kPage = R"(
SELECT {named_texts}, t.*
  FROM (SELECT t.*, count(*) OVER () AS rows_there,
               sum(octet_length(t.payload)) OVER w - octet_length(t.payload) AS bytes_before
          FROM ({page}) AS t
        WINDOW w AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) AS t
 WHERE bytes_before <= {bytes} ORDER BY {order})";
constexpr std::string_view kRangePage =
    "SELECT t.*, 0 AS n FROM {rows} AS t WHERE {range} ORDER BY {keys} LIMIT {step}";
constexpr std::string_view kKeysPage =
    "SELECT t.*, w.n FROM {wanted} AS w JOIN {rows} AS t ON {matched}";

constexpr std::string_view kSpelt = "SELECT {named_texts} FROM {wanted} AS t ORDER BY t.n";

std::string Join(const std::vector<std::string>& parts, std::string_view separator = ", ") {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string Name(size_t i) { return fmt::format("k{}", i + 1); }

}  // namespace

KeyType KeyType::Of(const std::string& type, char category) {
  if (category == 'S' || category == 'E') return {"text", true};
  return {type, false};
}

absl::StatusOr<std::vector<KeyType>> ReadKeyTypes(postgres::Connection& connection,
                                                  const SideRows& rows) {
  std::vector<std::string> types, values;
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    types.push_back(fmt::format("pg_typeof({}) AS {}", rows.keys[i], Name(i)));
    values.push_back(fmt::format("({}, k.{})", i, Name(i)));
  }
  auto answer = AskReadOnly(
      connection,
      postgres::FillNames(kTypes,
                          {{"types", Join(types)}, {"from", rows.from}, {"rows", Join(values)}}),
      postgres::Params(1));
  if (!answer.ok()) {
    return FailedPrecondition("{} can't be read: {}", rows.what, MessageOf(answer.status()));
  }
  std::vector<KeyType> read;
  for (const postgres::Row row : *answer) {
    read.push_back(KeyType::Of(row.String("type"), row.Text("category").front()));
  }
  return read;
}

VerifySide::VerifySide(postgres::Connection& connection, SideRows rows, std::vector<KeyType> types)
    : connection_(connection), rows_(std::move(rows)), types_(std::move(types)) {}

std::string VerifySide::Sql(std::string_view text, std::string_view more) const {
  // A comparison by "C" finds no index of another language: who looks keys up does without.
  const bool lookup = text.find("{matched}") != std::string_view::npos;
  std::vector<std::string> columns, keys, texts, named, arrays, matched, nulls;
  for (size_t i = 0; i < types_.size(); ++i) {
    const std::string name = Name(i);
    const KeyType& type = types_[i];
    const char* const order = type.text && !lookup ? " COLLATE \"C\"" : "";
    columns.push_back(fmt::format("({})::{}{} AS {}", rows_.keys[i], type.sql, order, name));
    keys.push_back(name);
    texts.push_back(type.sql == "numeric" ? fmt::format("trim_scale(t.{})::text", name)
                                          : fmt::format("t.{}::text", name));
    named.push_back(fmt::format("{} AS key{}", texts.back(), name));
    arrays.push_back(fmt::format("${}::{}[]", i + 1, type.sql));
    matched.push_back(fmt::format("t.{0} = w.{0}", name));
    nulls.push_back(fmt::format("{} IS NULL", name));
  }
  const std::string table =
      fmt::format("(SELECT {}, ({})::bigint AS v{} FROM {} AS r{})", Join(columns), rows_.version,
                  more, rows_.from, rows_.where.empty() ? "" : " WHERE " + rows_.where);
  const std::string wanted = fmt::format("(SELECT * FROM unnest({}) WITH ORDINALITY AS u ({}, n))",
                                         Join(arrays), Join(keys));
  return postgres::FillNames(text, {{"rows", table},
                                    {"keys", Join(keys)},
                                    {"texts", Join(texts)},
                                    {"named_texts", Join(named)},
                                    {"wanted", wanted},
                                    {"matched", Join(matched, " AND ")},
                                    {"nulls", Join(nulls, " OR ")}});
}

postgres::Params VerifySide::Wanted(const std::vector<RowKey>& keys) const {
  postgres::Params params;
  for (size_t i = 0; i < types_.size(); ++i) {
    postgres::Array array;
    for (const RowKey& key : keys) array.Add(std::string_view(key[i]));
    params.Add(array);
  }
  return params;
}

std::string VerifySide::InRange(const KeyRange& range, postgres::Params* params, int* next) const {
  std::vector<std::string> names, conditions;
  for (size_t i = 0; i < types_.size(); ++i) names.push_back("t." + Name(i));
  const auto bound = [&](const char* comparison, const std::optional<RowKey>& key) {
    if (!key) return;
    std::vector<std::string> values;
    for (size_t i = 0; i < types_.size(); ++i) {
      values.push_back(fmt::format("${}::{}", (*next)++, types_[i].sql));
      params->Add((*key)[i]);
    }
    conditions.push_back(fmt::format("({}) {} ({})", Join(names), comparison, Join(values)));
  };
  bound(range.behind ? ">" : ">=", range.from);
  bound("<", range.below);
  if (!conditions.empty()) return Join(conditions, " AND ");
  params->Add(1);
  return fmt::format("${}::int = 1", (*next)++);
}

absl::StatusOr<postgres::Result> VerifySide::Ask(const std::string& sql,
                                                 const postgres::Params& params) {
  if (before_each_) before_each_();
  auto answer = AskReadOnly(connection_, sql, params);
  if (answer.ok()) return answer;
  const auto classified = postgres::Classify(answer.status());
  if (classified != postgres::ErrorClass::kData &&
      classified != postgres::ErrorClass::kConfiguration) {
    return answer;
  }
  std::vector<std::string> types;
  for (const KeyType& type : types_) types.push_back(type.sql);
  return FailedPrecondition(
      "{} can't be compared by the key ({}), which is compared as ({}), and its version as bigint: "
      "{}",
      rows_.what, Join(rows_.keys), Join(types), MessageOf(answer.status()));
}

absl::StatusOr<int64_t> VerifySide::Count() {
  ASSIGN_OR_RETURN(const auto answer, Ask(Sql(kCount), postgres::Params(1)));
  const postgres::Row row = answer[0];
  if (row.Int("nulls") > 0) {
    return FailedPrecondition(
        "{}: {} rows have no key: ({}) is NULL; such rows can't be compared, nor replicated",
        rows_.what, row.Int("nulls"), Join(rows_.keys));
  }
  if (row.Int("unversioned") > 0) return Unversioned(row.Int("unversioned"));
  return row.Int("rows");
}

absl::Status VerifySide::Unversioned(int64_t rows) const {
  return FailedPrecondition(
      "{}: {} rows have no version: {} is NULL; give them one, as every change does", rows_.what,
      rows, rows_.version);
}

absl::StatusOr<bool> VerifySide::Sorted() {
  ASSIGN_OR_RETURN(const auto plan, Ask(Sql(kSorted), postgres::Params(1)));
  for (int i = 0; i < plan.rows(); ++i) {
    if (plan.Text(i, 0).find("Sort") != std::string_view::npos) return false;
  }
  return true;
}

absl::StatusOr<std::vector<VerifySide::Summary>> VerifySide::Summarize(
    const KeyRange& range, const std::vector<RowKey>& bounds) {
  postgres::Params params = Wanted(bounds);
  int next = static_cast<int>(types_.size()) + 1;
  std::string bucket = "0";
  if (bounds.empty()) {
    params = {};
    next = 1;
  } else if (types_.size() == 1) {
    bucket = fmt::format("width_bucket(t.k1, $1::{}[])", types_[0].sql);
  } else {
    std::vector<std::string> members;
    for (size_t i = 0; i < types_.size(); ++i) {
      members.push_back("w." + Name(i) + (types_[i].text ? " COLLATE \"C\"" : ""));
    }
    bucket =
        fmt::format("width_bucket(ROW({}), (SELECT array_agg(ROW({}) ORDER BY w.n) FROM {} AS w))",
                    Sql("{keys}"), Join(members), Sql("{wanted}"));
  }
  const std::string within = InRange(range, &params, &next);
  ASSIGN_OR_RETURN(
      const auto answer,
      Ask(Sql(postgres::FillNames(kSummaries, {{"bucket", bucket}, {"range", within}})), params));
  std::vector<Summary> summaries(bounds.size() + 1);
  for (const postgres::Row row : answer) {
    if (row.Int("unversioned") > 0) return Unversioned(row.Int("unversioned"));
    summaries.at(static_cast<size_t>(row.Int("bucket"))) = {row.Int("rows"), row.Int("hash")};
  }
  return summaries;
}

absl::StatusOr<std::vector<RowKey>> VerifySide::Split(const KeyRange& range, int64_t step) {
  postgres::Params params;
  int next = 1;
  const std::string within = InRange(range, &params, &next);
  ASSIGN_OR_RETURN(
      const auto answer,
      Ask(Sql(postgres::FillNames(kSplit, {{"range", within}, {"step", std::to_string(step)}})),
          params));
  std::vector<RowKey> bounds;
  for (const postgres::Row row : answer) {
    bounds.push_back(KeyOf(row));
    // Such a range could be divided for ever.
    if (bounds.size() > 1 && bounds.back() == bounds[bounds.size() - 2])
      return Twice(bounds.back());
  }
  return bounds;
}

absl::StatusOr<std::optional<RowKey>> VerifySide::After(const KeyRange& range, int64_t rows) {
  postgres::Params params;
  int next = 1;
  const std::string within = InRange(range, &params, &next);
  ASSIGN_OR_RETURN(
      const auto answer,
      Ask(Sql(postgres::FillNames(kAfter, {{"range", within}, {"step", std::to_string(rows)}})),
          params));
  if (answer.empty()) return std::nullopt;
  RowKey key = KeyOf(answer[0]);
  if (range.from == key) return Twice(key);  // no step would ever get past it
  return key;
}

absl::StatusOr<int64_t> VerifySide::Estimate(const KeyRange& range) {
  postgres::Params params;
  int next = 1;
  const std::string within = InRange(range, &params, &next);
  ASSIGN_OR_RETURN(const auto plan,
                   Ask(Sql(postgres::FillNames(kEstimate, {{"range", within}})), params));
  const auto parsed = nlohmann::json::parse(plan.Text(0, 0), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array() || parsed.empty()) return 0;
  return parsed[0].value(nlohmann::json::json_pointer("/Plan/Plan Rows"), int64_t{0});
}

absl::StatusOr<RowKey> VerifySide::Least(const std::vector<RowKey>& keys) {
  std::vector<std::string> ordered;
  for (size_t i = 0; i < types_.size(); ++i) {
    ordered.push_back("t." + Name(i) + (types_[i].text ? " COLLATE \"C\"" : ""));
  }
  ASSIGN_OR_RETURN(
      const auto answer,
      Ask(Sql(postgres::FillNames(kLeast, {{"ordered", Join(ordered)}})), Wanted(keys)));
  return KeyOf(answer[0]);
}

absl::Status VerifySide::Twice(const RowKey& key) const {
  return FailedPrecondition("{}: the key ({}) is there twice: ({}) does not tell rows apart",
                            rows_.what, Join(key), Join(rows_.keys));
}

RowKey VerifySide::KeyOf(const postgres::Row& row) const {
  RowKey key;
  for (size_t i = 0; i < types_.size(); ++i) key.push_back(row.String("key" + Name(i)));
  return key;
}

std::string VerifySide::PageSql(std::string_view rows, std::string_view order, int64_t bytes,
                                const std::string& more) const {
  return Sql(postgres::FillNames(
                 kPage, {{"page", rows}, {"order", order}, {"bytes", std::to_string(bytes)}}),
             more);
}

absl::StatusOr<postgres::Result> VerifySide::ReadPage(const KeyRange& range,
                                                      const std::string& more, int64_t rows,
                                                      int64_t bytes) {
  postgres::Params params;
  int next = 1;
  const std::string within = InRange(range, &params, &next);
  const std::string page =
      postgres::FillNames(kRangePage, {{"range", within}, {"step", std::to_string(rows)}});
  return Ask(PageSql(page, "{keys}", bytes, more), params);
}

absl::StatusOr<postgres::Result> VerifySide::ReadPage(const std::vector<RowKey>& keys,
                                                      const std::string& more, int64_t bytes) {
  return Ask(PageSql(kKeysPage, "n", bytes, more), Wanted(keys));
}

absl::StatusOr<std::map<RowKey, int64_t>> VerifySide::List(const KeyRange& range) {
  postgres::Params params;
  int next = 1;
  const std::string within = InRange(range, &params, &next);
  ASSIGN_OR_RETURN(const auto answer,
                   Ask(Sql(postgres::FillNames(kList, {{"range", within}})), params));
  std::map<RowKey, int64_t> rows;
  for (const postgres::Row row : answer) {
    const auto [at, fresh] = rows.emplace(KeyOf(row), row.Int("v"));
    if (!fresh) return Twice(at->first);
  }
  return rows;
}

absl::StatusOr<std::vector<RowKey>> VerifySide::Spelt(const std::vector<RowKey>& keys) {
  ASSIGN_OR_RETURN(const auto answer, Ask(Sql(kSpelt), Wanted(keys)));
  std::vector<RowKey> spelt;
  for (const postgres::Row row : answer) spelt.push_back(KeyOf(row));
  return spelt;
}

absl::StatusOr<std::map<RowKey, int64_t>> VerifySide::Find(const std::vector<RowKey>& keys) {
  ASSIGN_OR_RETURN(const auto answer, Ask(Sql(kFind), Wanted(keys)));
  const std::set<RowKey> asked(keys.begin(), keys.end());
  std::map<RowKey, int64_t> rows;
  for (const postgres::Row row : answer) {
    RowKey key = KeyOf(row);
    // A collation may take other texts for the same.
    if (asked.contains(key)) rows.emplace(std::move(key), row.Int("v"));
  }
  return rows;
}

}  // namespace lockstep::verify
