#include "verify/deep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "envelope/event.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "projections/model/cells.h"
#include "projections/plan/live_table.h"
#include "publisher/backfill/payload_maker.h"
#include "publisher/backfill/source_query.h"

namespace lockstep::verify {
namespace {

// {different}: an array of the names of columns that differ, NULLs between; {given}: $n of what the
// source's rows become. No array: the versions differ.
constexpr std::string_view kDifferent = R"(
SELECT n, v, there, array_to_string(different, E'\x01') AS columns
  FROM (SELECT w.n, w.v, t.v AS there,
               CASE WHEN t.v = w.v THEN array_remove(ARRAY[{different}]::text[], NULL) END
                 AS different
          FROM unnest({given}) WITH ORDINALITY AS w ({names}, n)
          LEFT JOIN {rows} AS t ON {matched}) AS d
 WHERE different IS NULL OR cardinality(different) > 0
 ORDER BY n)";

constexpr int64_t kPageRows = 20'000;
constexpr size_t kUnmappedAtOnce = 1'000;

std::string JoinAll(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ", "));
}

// As which type values are compared; a length would cut a text that is too long to be stored.
std::string ComparedAs(const projections::LiveColumn& column) {
  if (column.base_type == "json") return "jsonb";
  if (column.category == 'G' || column.base_type == "xml") return "text";  // have no equality
  return column.category == 'S' || column.category == 'A' ? column.type : column.full_type;
}

struct ComparedColumn {
  std::string name;
  uint32_t value = 0;  // its place among the table's values
  std::string type;
  bool has_default = false;  // of a value that the event leaves out
};

}  // namespace

struct DeepCompare::Parts {
  const publisher::Declaration& declaration;
  const projections::GroupProjector& projector;
  const VerifyTable& table;
  VerifySide& source;
  VerifySide& replica;
  publisher::PayloadMaker payloads;
  std::string more;  // what is read of a source's row
  size_t keys = 0;
  std::vector<ComparedColumn> columns;
  std::string sql;

  absl::StatusOr<std::unique_ptr<projections::Change>> Map(const postgres::Row& row) const {
    ASSIGN_OR_RETURN(std::string payload, payloads.Payload(row.String("payload")));
    envelope::Event event{.event_id = EventId("00000000-0000-0000-0000-000000000000"),
                          .event_type = declaration.event_type,
                          .aggregate = {.tenant_id = row.OptionalText("tenant_id"),
                                        .type = declaration.aggregate_type,
                                        .id = row.String("aggregate_id")},
                          .version = row.Int("v"),
                          .schema_version = declaration.schema_version,
                          .content_type = payloads.content_type(),
                          .topic = declaration.topic,
                          .payload = std::move(payload)};
    auto mapped = projector.Map(event);
    if (mapped.ok()) return mapped;
    return FailedPrecondition("a row of {} can't go through projection {}: {}",
                              declaration.SourceName(), table.projection,
                              MessageOf(mapped.status()));
  }
};

DeepCompare::DeepCompare(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
DeepCompare::~DeepCompare() = default;

absl::StatusOr<std::unique_ptr<DeepCompare>> DeepCompare::Make(
    const publisher::Declaration& declaration, const projections::GroupProjector& projector,
    const VerifyTable& table, VerifySide& source, VerifySide& replica, int64_t page_bytes) {
  ASSIGN_OR_RETURN(auto payloads, publisher::PayloadMaker::Make(declaration));
  ASSIGN_OR_RETURN(const auto query,
                   publisher::SourceQuery::Make(source.connection(), declaration));
  auto parts = std::unique_ptr<Parts>(
      new Parts{declaration, projector, table, source, replica, std::move(payloads)});
  parts->more = fmt::format(
      ", {} AS payload, (r.{})::text AS aggregate_id, {}::text AS tenant_id", query.PayloadSql("r"),
      postgres::QuoteIdentifier(declaration.aggregate_id),
      declaration.tenant.empty() ? "NULL" : "r." + postgres::QuoteIdentifier(declaration.tenant));

  const projections::Table& declared = projector.plan().tables[table.index];
  ASSIGN_OR_RETURN(const auto live,
                   projections::ReadLiveTable(replica.connection(), declared.name));
  std::vector<std::string> different, given, names;
  std::string columns;
  int next = 1;
  for (const KeyType& type : replica.types()) {
    names.push_back(fmt::format("k{}", next));
    given.push_back(fmt::format("${}::{}[]", next++, type.sql));
  }
  names.push_back("v");
  given.push_back(fmt::format("${}::bigint[]", next++));
  names.push_back("mask");
  given.push_back(fmt::format("${}::text[]", next++));
  for (const uint32_t value : table.values) {
    const std::string& name = declared.values[value].name;
    const auto column = live.columns.find(name);
    if (column == live.columns.end()) {
      return FailedPrecondition("{} has no column {}", table.name, name);
    }
    const std::string type = ComparedAs(column->second);
    parts->columns.push_back({name, value, type, column->second.default_sql.has_value()});
    const size_t number = parts->columns.size();
    columns += fmt::format(", (r.{})::{} AS c{}", postgres::QuoteIdentifier(name), type, number);
    names.push_back(fmt::format("c{}", number));
    given.push_back(fmt::format("${}::text[]", next++));
    different.push_back(
        fmt::format("CASE WHEN substr(w.mask, {0}, 1) = '1' AND t.c{0} IS DISTINCT FROM "
                    "w.c{0}::{1} THEN {2} END",
                    number, type, postgres::QuoteLiteral(name)));
  }
  parts->keys = declared.key.size();
  parts->sql = replica.Sql(postgres::FillNames(kDifferent, {{"different", JoinAll(different)},
                                                            {"given", JoinAll(given)},
                                                            {"names", JoinAll(names)}}),
                           columns);
  auto made = std::unique_ptr<DeepCompare>(new DeepCompare(std::move(parts)));
  made->page_bytes_ = page_bytes;
  return made;
}

absl::Status DeepCompare::InRange(const KeyRange& range, std::vector<Difference>* found) {
  KeyRange left = range;
  int64_t rows = kPageRows;
  while (true) {
    ASSIGN_OR_RETURN(const auto page,
                     parts_->source.ReadPage(left, parts_->more, rows, page_bytes_));
    if (page.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(Compare(page, found));
    const int64_t there = page[0].Int("rows_there");
    if (page.rows() == there && there < rows) return absl::OkStatus();
    left.from = parts_->source.KeyOf(page[page.rows() - 1]);
    left.behind = true;
    // Where rows are wide, the server need not look at more than will come.
    rows = std::clamp<int64_t>(2 * page.rows(), 1, kPageRows);
  }
}

absl::Status DeepCompare::OfKeys(const std::vector<RowKey>& keys, std::vector<Difference>* found) {
  std::vector<RowKey> left = keys;
  while (!left.empty()) {
    ASSIGN_OR_RETURN(const auto page, parts_->source.ReadPage(left, parts_->more, page_bytes_));
    if (page.empty()) break;
    RETURN_IF_ERROR(Compare(page, found));
    if (page.rows() == page[0].Int("rows_there")) break;
    left.erase(left.begin(), left.begin() + page[page.rows() - 1].Int("n"));
  }
  return absl::OkStatus();
}

absl::Status DeepCompare::Compare(const postgres::Result& rows, std::vector<Difference>* found) {
  std::vector<RowKey> keys;
  postgres::Array versions, masks;
  std::vector<postgres::Array> values(parts_->columns.size());
  std::vector<Difference> unmapped;
  for (const postgres::Row row : rows) {
    const auto mapped = parts_->Map(row);
    if (!mapped.ok()) {
      unmapped.push_back({.kind = DifferenceKind::kContent,
                          .key = parts_->source.KeyOf(row),
                          .source_version = row.Int("v"),
                          .unmapped = std::string(MessageOf(mapped.status()))});
      continue;
    }
    const auto& change = static_cast<const projections::MappedChange&>(**mapped);
    for (const projections::RowChange& one : change.rows) {
      if (one.table != parts_->table.index) continue;
      keys.push_back(parts_->source.KeyOf(row));
      versions.Add(row.Int("v"));
      std::string mask;
      for (size_t i = 0; i < parts_->columns.size(); ++i) {
        const ComparedColumn& column = parts_->columns[i];
        const projections::Cell& cell = change.cells[one.first_cell + parts_->keys + column.value];
        const bool absent = cell.state == projections::CellState::kAbsent;
        mask += absent && column.has_default ? '0' : '1';
        cell.state == projections::CellState::kText ? values[i].Add(change.Text(cell))
                                                    : values[i].AddNull();
      }
      masks.Add(std::string_view(mask));
    }
  }
  for (size_t i = 0; i < unmapped.size(); i += kUnmappedAtOnce) {
    const size_t end = std::min(i + kUnmappedAtOnce, unmapped.size());
    std::vector<RowKey> wanted;
    for (size_t j = i; j < end; ++j) wanted.push_back(unmapped[j].key);
    ASSIGN_OR_RETURN(const auto here, parts_->replica.Find(wanted));
    for (size_t j = i; j < end; ++j) {
      const auto version = here.find(unmapped[j].key);
      if (version != here.end()) unmapped[j].replica_version = version->second;
      found->push_back(std::move(unmapped[j]));
    }
  }
  if (keys.empty()) return absl::OkStatus();
  postgres::Params params = parts_->replica.Wanted(keys);
  params.Add(versions).Add(masks);
  for (const postgres::Array& array : values) params.Add(array);
  ASSIGN_OR_RETURN(const auto answer, parts_->replica.connection().Execute(parts_->sql, params));
  for (const postgres::Row row : answer) {
    Difference one{.kind = DifferenceKind::kContent,
                   .key = keys[static_cast<size_t>(row.Int("n") - 1)],
                   .source_version = row.Int("v"),
                   .replica_version = row.OptionalInt("there")};
    const std::string columns = row.OptionalText("columns").value_or("");
    for (size_t at = 0; !columns.empty() && at <= columns.size();) {
      const size_t end = std::min(columns.find('\x01', at), columns.size());
      one.columns.push_back(columns.substr(at, end - at));
      at = end + 1;
    }
    found->push_back(std::move(one));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::verify
