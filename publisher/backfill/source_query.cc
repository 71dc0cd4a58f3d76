#include "publisher/backfill/source_query.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using postgres::FillNames;
using postgres::QuoteIdentifier;
using postgres::Result;
using postgres::Row;

// Rows can be wide without warning: what is read at once is bounded, whatever the page's size.
constexpr int64_t kPageBytes = 16 << 20;

// Each statement with a declared query has a parameter: only then Postgres takes no second one
// behind a semicolon.

// A row of NULLs with the columns' types, whatever the source holds.
constexpr char kTypes[] = "SELECT {types} FROM (SELECT $1::int) one LEFT JOIN {source} q ON false";
constexpr char kTypeOf[] =
    "format_type(pg_typeof({column}), -1), (SELECT format_type(coalesce(nullif(t.typbasetype, 0), "
    "t.oid), -1) "
    "FROM pg_type t WHERE t.oid = pg_typeof({column}))";

constexpr char kHighest[] = "SELECT {texts} FROM {source} q ORDER BY {descending} LIMIT $1::int";
constexpr char kNullKeys[] =
    "SELECT EXISTS (SELECT 1 FROM {source} q WHERE {nulls} LIMIT $1::int) AS found";
constexpr char kNotNull[] = R"sql(
SELECT count(*) AS columns FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attname = ANY ($2::text[]) AND attnotnull)sql";
constexpr char kEstimate[] = "EXPLAIN (FORMAT JSON) SELECT $1::int FROM {source} q";

constexpr char kPage[] = R"sql(
SELECT statement_timestamp() AS read_at, {texts}, aggregate_id, tenant, version, payload, repeated, 0 AS n
FROM (
  SELECT p.*, sum(octet_length(payload)) OVER w - octet_length(payload) AS bytes_before,
         coalesce({same}, false) AS repeated
  FROM (
    SELECT {list} FROM {source} q
    WHERE {behind} AND ({keys}) <= ({up_to})
    ORDER BY {keys} LIMIT {limit}::int) p
  WINDOW w AS (ORDER BY {places} ROWS UNBOUNDED PRECEDING)) p
WHERE bytes_before <= {bytes}
ORDER BY {places})sql";

constexpr char kKeys[] = R"sql(
SELECT statement_timestamp() AS read_at, {texts}, aggregate_id, tenant, version, payload, false AS repeated, n
FROM (
  SELECT p.*, sum(octet_length(payload)) OVER w - octet_length(payload) AS bytes_before
  FROM (SELECT {list}, wanted.n FROM {source} q
        JOIN unnest({arrays}) WITH ORDINALITY AS wanted ({places}, n) ON {match}) p
  WINDOW w AS (ORDER BY n ROWS UNBOUNDED PRECEDING)) p
WHERE bytes_before <= {bytes}
ORDER BY n)sql";

std::string Column(const std::string& name) { return "q." + QuoteIdentifier(name); }

template <class Function>
std::string Joined(size_t count, const char* separator, const Function& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) all += separator;
    all += text(i);
  }
  return all;
}

// Texts of the keys, as columns key0, key1, …
std::string KeyTextList(size_t count, const std::string& prefix) {
  return Joined(count, ", ",
                [&](size_t i) { return fmt::format("{}{}::text AS key{}", prefix, i, i); });
}

KeyTexts KeyFrom(const Row& row, size_t count) {
  KeyTexts key;
  for (size_t i = 0; i < count; ++i) key.push_back(row.String(fmt::format("key{}", i)));
  return key;
}

// READ ONLY: a declared query must not be able to write with the publisher's rights.
absl::StatusOr<Result> Ask(postgres::Connection& connection, const std::string& sql,
                           const postgres::Params& params) {
  ASSIGN_OR_RETURN(auto transaction, connection.Begin());
  RETURN_IF_ERROR(transaction.Run("SET TRANSACTION READ ONLY"));
  auto answer = transaction.Execute(sql, params);
  if (answer.ok()) RETURN_IF_ERROR(transaction.Commit());
  return answer;
}

}  // namespace

absl::Status SourceQuery::Explain(const absl::Status& status) const {
  if (status.ok()) return status;
  const std::string state = postgres::SqlState(status);
  const std::string source = declaration_.SourceName();
  std::string words(MessageOf(status));
  if (words.starts_with("ERROR:")) words = std::string(Trim(std::string_view(words).substr(6)));
  if (state == "42P01") {
    return InvalidArgument("{} can't be read: {} (names need their schema)", source, words);
  }
  if (state == "42501") {
    return absl::PermissionDeniedError(
        fmt::format("{} can't be read: {}; the role that reads it needs SELECT (the publisher's; "
                    "for check the operator's too)",
                    source, words));
  }
  const auto kind = postgres::Classify(status);
  if (kind == postgres::ErrorClass::kTransient || kind == postgres::ErrorClass::kInDoubt) {
    return status;
  }
  return InvalidArgument("{} can't be read: {}", source, words);
}

absl::StatusOr<SourceQuery> SourceQuery::Make(postgres::Connection& connection,
                                              const Declaration& declaration) {
  SourceQuery query(declaration);
  const size_t count = declaration.key.size();
  query.keys_ = Joined(count, ", ", [&](size_t i) { return Column(declaration.key[i]); });
  query.places_ = Joined(count, ", ", [](size_t i) { return fmt::format("k{}", i); });
  RETURN_IF_ERROR(query.ReadTypes(connection));
  const ColumnType& version = query.TypeOf(declaration.version);
  if (version.base != "smallint" && version.base != "integer" && version.base != "bigint") {
    return InvalidArgument(
        "the version column {} of {} is of type {}; it must be a smallint, integer or bigint "
        "(a `query` may cast it)",
        declaration.version, declaration.SourceName(), version.type);
  }
  // Nothing is read, but Postgres looks whether the keys can be sorted and compared.
  postgres::Params nulls;
  for (size_t i = 0; i < count; ++i) nulls.Add(nullptr);
  nulls.Add(0);
  absl::Status judged = query.Run(connection, query.PageSql(/*from_start=*/true), nulls).status();
  if (judged.ok()) judged = query.ReadKeys(connection, {}).status();
  if (MessageOf(judged).find("operator") != std::string_view::npos) {
    return InvalidArgument("the key ({}) of {} can't be sorted: {}",
                           fmt::join(declaration.key, ", "), declaration.SourceName(),
                           MessageOf(judged));
  }
  RETURN_IF_ERROR(judged);
  return query;
}

absl::Status SourceQuery::ReadTypes(postgres::Connection& connection) {
  const std::vector<std::string> names = declaration_.Columns();
  const std::string types = Joined(names.size(), ", ", [&](size_t i) {
    const std::string column = Column(names[i]);
    return FillNames(kTypeOf, {{"column", column}});
  });
  const auto found =
      Ask(connection, FillNames(kTypes, {{"types", types}, {"source", declaration_.SourceSql()}}),
          postgres::Params(1));
  if (!found.ok()) return Explain(found.status());
  for (size_t i = 0; i < names.size(); ++i) {
    const int at = static_cast<int>(2 * i);
    columns_.push_back(
        {names[i], std::string(found->Text(0, at)), std::string(found->Text(0, at + 1))});
  }
  return absl::OkStatus();
}

const SourceQuery::ColumnType& SourceQuery::TypeOf(const std::string& column) const {
  return *std::ranges::find(columns_, column, &ColumnType::name);
}

std::string SourceQuery::PayloadSql(const std::string& alias) const {
  const std::string fields = Joined(declaration_.fields.size(), ", ", [&](size_t i) {
    const auto& [field, column] = declaration_.fields[i];
    std::string value = fmt::format("{}.{}", alias, QuoteIdentifier(column));
    // As protobuf's JSON has bytes; Postgres's own base64 has line breaks.
    if (TypeOf(column).base == "bytea") {
      value = fmt::format("translate(encode({}, 'base64'), E'\\n', '')", value);
    }
    return fmt::format("{} AS {}", value, QuoteIdentifier(field));
  });
  return fmt::format("(SELECT row_to_json(f)::text FROM (SELECT {}) f)", fields);
}

std::string SourceQuery::SelectList() const {
  const std::string tenant =
      declaration_.tenant.empty() ? "NULL" : Column(declaration_.tenant) + "::text";
  const std::string keys = Joined(declaration_.key.size(), ", ", [&](size_t i) {
    return fmt::format("{} AS k{}", Column(declaration_.key[i]), i);
  });
  return fmt::format(
      "{}, {}::text AS aggregate_id, {} AS tenant, {}::bigint AS version, {} AS payload", keys,
      Column(declaration_.aggregate_id), tenant, Column(declaration_.version), PayloadSql("q"));
}

// Parameters: the highest key, the limit, and the key to go on from.
std::string SourceQuery::PageSql(bool from_start) const {
  const size_t count = declaration_.key.size();
  const auto values = [&](size_t first) {
    return Joined(count, ", ", [&](size_t i) {
      return fmt::format("${}::{}", first + i, TypeOf(declaration_.key[i]).type);
    });
  };
  const std::string behind =
      from_start ? "true" : fmt::format("({}) > ({})", keys_, values(count + 2));
  const std::string same =
      Joined(count, " AND ", [](size_t i) { return fmt::format("lag(k{}) OVER w = k{}", i, i); });
  return FillNames(kPage, {{"texts", KeyTextList(count, "k")},
                           {"same", same},
                           {"list", SelectList()},
                           {"source", declaration_.SourceSql()},
                           {"behind", behind},
                           {"keys", keys_},
                           {"up_to", values(1)},
                           {"limit", fmt::format("${}", count + 1)},
                           {"places", places_},
                           {"bytes", fmt::format("{}", kPageBytes)}});
}

std::string SourceQuery::KeysSql() const {
  const size_t count = declaration_.key.size();
  const std::string arrays =
      Joined(count, ", ", [&](size_t i) { return fmt::format("${}::text[]", i + 1); });
  const std::string wanted = Joined(count, ", ", [](size_t i) { return fmt::format("w{}", i); });
  const std::string match = Joined(count, " AND ", [&](size_t i) {
    return fmt::format("{} = wanted.w{}::{}", Column(declaration_.key[i]), i,
                       TypeOf(declaration_.key[i]).type);
  });
  return FillNames(kKeys, {{"texts", KeyTextList(count, "k")},
                           {"list", SelectList()},
                           {"source", declaration_.SourceSql()},
                           {"arrays", arrays},
                           {"places", wanted},
                           {"match", match},
                           {"bytes", fmt::format("{}", kPageBytes)}});
}

absl::StatusOr<SourcePage> SourceQuery::Run(postgres::Connection& connection,
                                            const std::string& sql,
                                            const postgres::Params& params) const {
  const auto read = Ask(connection, sql, params);
  if (!read.ok()) return Explain(read.status());
  SourcePage page;
  page.rows.reserve(static_cast<size_t>(read->rows()));
  if (!read->empty()) page.read_at = (*read)[0].Time("read_at");
  for (const Row row : *read) {
    SourceRow& next = page.rows.emplace_back();
    next.key = KeyFrom(row, declaration_.key.size());
    next.aggregate_id = row.OptionalText("aggregate_id");
    next.tenant_id = row.OptionalText("tenant");
    next.version = row.OptionalInt("version");
    next.payload = row.String("payload");
    next.repeated = row.Bool("repeated");
    next.n = row.Int("n");
    page.bytes += static_cast<int64_t>(next.payload.size());
  }
  return page;
}

absl::StatusOr<SourcePage> SourceQuery::Read(postgres::Connection& connection,
                                             const std::optional<KeyTexts>& after,
                                             const KeyTexts& up_to, int rows) const {
  postgres::Params params;
  for (const std::string& text : up_to) params.Add(text);
  params.Add(rows + 1);
  if (after.has_value()) {
    for (const std::string& text : *after) params.Add(text);
  }
  ASSIGN_OR_RETURN(SourcePage page, Run(connection, PageSql(!after.has_value()), params));
  for (size_t i = 1; i < page.rows.size(); ++i) {
    if (!page.rows[i].repeated) continue;
    return InvalidArgument(
        "the key ({}) of {} is not unique: two rows have ({}), of which one would be passed over",
        fmt::join(declaration_.key, ", "), declaration_.SourceName(),
        fmt::join(page.rows[i].key, ", "));
  }
  // A page that was cut by its bytes has fewer rows than asked for, and others behind it. The row
  // beyond the page shows that the next key is another.
  page.last = page.rows.size() <= static_cast<size_t>(rows) && page.bytes <= kPageBytes;
  if (!page.last && page.rows.size() > 1) {
    page.bytes -= static_cast<int64_t>(page.rows.back().payload.size());
    page.rows.pop_back();
  }
  return page;
}

absl::StatusOr<SourcePage> SourceQuery::ReadKeys(postgres::Connection& connection,
                                                 const std::vector<KeyTexts>& keys) const {
  postgres::Params params;
  for (size_t i = 0; i < declaration_.key.size(); ++i) {
    postgres::Array column;
    for (const KeyTexts& key : keys) column.Add(key[i]);
    params.Add(column);
  }
  ASSIGN_OR_RETURN(SourcePage page, Run(connection, KeysSql(), params));
  page.last = page.bytes <= kPageBytes;
  page.keys = page.last ? keys.size() : static_cast<size_t>(page.rows.back().n);
  return page;
}

absl::StatusOr<std::optional<KeyTexts>> SourceQuery::Highest(
    postgres::Connection& connection) const {
  const size_t count = declaration_.key.size();
  const std::string texts = Joined(count, ", ", [&](size_t i) {
    return fmt::format("{}::text AS key{}", Column(declaration_.key[i]), i);
  });
  const std::string descending =
      Joined(count, ", ", [&](size_t i) { return Column(declaration_.key[i]) + " DESC"; });
  const auto found = Ask(connection,
                         FillNames(kHighest, {{"texts", texts},
                                              {"source", declaration_.SourceSql()},
                                              {"descending", descending}}),
                         postgres::Params(1));
  if (!found.ok()) return Explain(found.status());
  if (found->empty()) return std::nullopt;
  return KeyFrom((*found)[0], count);
}

absl::StatusOr<bool> SourceQuery::HasNullKeys(postgres::Connection& connection) const {
  if (!declaration_.table.empty()) {
    ASSIGN_OR_RETURN(const Result sure,
                     connection.Execute(kNotNull, declaration_.SourceSql(), declaration_.key));
    if (sure[0].Int("columns") == static_cast<int64_t>(declaration_.key.size())) return false;
  }
  const std::string nulls = Joined(declaration_.key.size(), " OR ", [&](size_t i) {
    return Column(declaration_.key[i]) + " IS NULL";
  });
  const auto found = Ask(
      connection, FillNames(kNullKeys, {{"source", declaration_.SourceSql()}, {"nulls", nulls}}),
      postgres::Params(1));
  if (!found.ok()) return Explain(found.status());
  return (*found)[0].Bool("found");
}

absl::StatusOr<int64_t> SourceQuery::Estimate(postgres::Connection& connection) const {
  const auto plan = Ask(connection, FillNames(kEstimate, {{"source", declaration_.SourceSql()}}),
                        postgres::Params(1));
  if (!plan.ok()) return Explain(plan.status());
  const json parsed = json::parse(plan->Text(0, 0), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array() || parsed.empty()) return 0;
  return parsed[0].value("/Plan/Plan Rows"_json_pointer, int64_t{0});
}

}  // namespace lockstep::publisher
