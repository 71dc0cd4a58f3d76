#include "verify/repair_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "platform/status.h"
#include "platform/text.h"
#include "postgres/identifier.h"
#include "verify/session.h"

namespace lockstep::verify {
namespace {

constexpr std::string_view kSourceKeys = R"(
SELECT {declared} FROM {wanted} AS w JOIN {rows} AS t ON {matched} ORDER BY w.n)";

constexpr std::string_view kThere = R"(
SELECT DISTINCT w.n FROM {wanted} AS w JOIN {rows} AS t ON {matched})";

// Key columns whose values may be equal although their texts are not.
constexpr std::string_view kLoose = R"(
SELECT count(*) AS columns
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_collation c ON c.oid = a.attcollation
 WHERE a.attrelid = $1::regclass AND a.attname = ANY ($2::text[])
   AND (t.typnamespace <> 'pg_catalog'::regnamespace
        OR NOT (t.typname IN ('uuid', 'int2', 'int4', 'int8', 'numeric', 'bool', 'bytea', 'date',
                              'timestamp', 'timestamptz')
                OR (t.typname IN ('text', 'varchar') AND coalesce(c.collisdeterministic, true)))))";

// $1 keys as rows of the table in JSON, those of ghosts first, $2 how many. Groups are made by the
// types' own equality and the columns' collations; an operator would be looked for by the session's
// search path, and a type's that another schema has would not be found.
constexpr std::string_view kAlike = R"(
SELECT unnest(array_agg(u.n) FILTER (WHERE u.n <= $2::bigint)) AS n
  FROM unnest($1::jsonb[]) WITH ORDINALITY AS u (j, n)
 CROSS JOIN LATERAL jsonb_populate_record(NULL::{table}, u.j) AS r
 GROUP BY {columns}
HAVING bool_or(u.n > $2::bigint))";

constexpr size_t kKeysAtATime = 1'000;

std::vector<RowKey> PageOf(const std::vector<RowKey>& keys, size_t first) {
  return {keys.begin() + first, keys.begin() + std::min(first + kKeysAtATime, keys.size())};
}

// The place in a replica's key of what comes from a column of the source.
std::optional<size_t> PlaceOf(const VerifyTable& table, const std::string& column) {
  for (size_t i = 0; i < table.keys.size(); ++i) {
    if (!column.empty() && table.keys[i].source_column == column) return i;
  }
  return std::nullopt;
}

// Where a replica's key has its aggregate: the id, and the tenant if there is one.
absl::StatusOr<std::vector<size_t>> AggregatePlaces(const publisher::Declaration& declaration,
                                                    const VerifyTable& table) {
  std::vector<size_t> places;
  for (const std::string& column : {declaration.aggregate_id, declaration.tenant}) {
    if (column.empty()) continue;
    const auto place = PlaceOf(table, column);
    if (!place) {
      return FailedPrecondition(
          "the key of {} does not hold {}, so a ghost's aggregate can't be told; delete these rows "
          "by events of the source",
          table.name, column);
    }
    places.push_back(*place);
  }
  return places;
}

// Whether a text of the replica's type can be one of the source's: the publisher looks all keys up
// with one statement, which a single one that can't be would fail.
bool Fits(const std::string& text, const KeyType& replica, const KeyType& source) {
  if (source.sql == replica.sql || source.text) return true;
  int64_t number = 0;
  if (!ParseWhole(text, &number)) return false;
  return source.sql == "bigint" || (source.sql == "integer" && std::in_range<int32_t>(number)) ||
         (source.sql == "smallint" && std::in_range<int16_t>(number));
}

// `there`: the key's types at the source.
publisher::Ghost GhostOf(const publisher::Declaration& declaration, const VerifyTable& table,
                         const std::vector<size_t>& aggregate, const VerifySide& replica,
                         const std::vector<KeyType>& there, const Difference& row) {
  publisher::Ghost ghost{.aggregate_id = row.key[aggregate[0]],
                         .version = row.replica_version.value_or(0),
                         .payload = nlohmann::ordered_json::object()};
  if (aggregate.size() > 1) ghost.tenant_id = row.key[aggregate[1]];
  for (const std::string& column : declaration.key) {
    const auto place = PlaceOf(table, column);
    if (!place || !Fits(row.key[*place], replica.types()[*place], there[*place])) {
      ghost.key.clear();  // that it is gone was looked at as the replica spells it
      break;
    }
    ghost.key.push_back(row.key[*place]);
  }
  for (size_t i = 0; i < table.keys.size(); ++i) {
    if (!table.keys[i].field.empty()) ghost.payload[table.keys[i].field] = row.key[i];
  }
  return ghost;
}

// Sorts out ghosts that must stay. A step looks at those that the steps before have left.
class GhostSieve {
 public:
  GhostSieve(const VerifyTable& table, VerifySide& source, VerifySide& replica,
             std::vector<RowKey> keys)
      : table_(table), source_(source), replica_(replica), left_(std::move(keys)) {}

  const std::vector<RowKey>& left() const { return left_; }
  std::vector<RepairPlan::Kept>& kept() { return kept_; }

  // Rows of other sources are no ghosts, nor are those that a query leaves out.
  absl::Status KeepForeign(const publisher::Declaration& declaration) {
    if (!declaration.query.empty()) {
      Keep({left_.begin(), left_.end()},
           fmt::format("the query of backfill {} may leave out rows that the source has; if it has "
                       "every row that belongs into {}, say so with --whole-table",
                       declaration.name, table_.name));
      return absl::OkStatus();
    }
    if (table_.owned.empty()) {
      std::string others;
      if (!table_.other_events.empty()) {
        others = fmt::format(" ({} do)", fmt::join(table_.other_events, ", "));
      }
      Keep({left_.begin(), left_.end()},
           fmt::format("{} has no `aggregate` column, and events of other aggregates may write to "
                       "it{}; if all its rows are of this source, say so with --whole-table",
                       table_.name, others));
      return absl::OkStatus();
    }
    SideRows rows = replica_.rows();
    rows.where += (rows.where.empty() ? "" : " AND ") + table_.owned;
    VerifySide owned(replica_.connection(), rows, replica_.types());
    std::set<RowKey> foreign(left_.begin(), left_.end());
    for (size_t i = 0; i < left_.size(); i += kKeysAtATime) {
      ASSIGN_OR_RETURN(const auto found, owned.Find(PageOf(left_, i)));
      for (const auto& [key, version] : found) foreign.erase(key);
    }
    Keep(foreign,
         "its aggregate is not known, so it may be another source's; if all rows of the table are "
         "of this one, say so with --whole-table");
    return absl::OkStatus();
  }

  // The message would name the row that has this source's constants.
  void KeepOtherConstants() {
    std::set<RowKey> other;
    for (const RowKey& key : left_) {
      for (size_t i = 0; i < key.size(); ++i) {
        const KeySource& from = table_.keys[i];
        if (from.source_column.empty() && key[i] != from.constant) other.insert(key);
      }
    }
    Keep(other, "its key holds another constant than this source's rows");
  }

  // The row that would go may be one that the source has under another spelling.
  absl::Status KeepAlike(const std::vector<RowKey>& missing, bool complete) {
    if (left_.empty() || (missing.empty() && complete)) return absl::OkStatus();
    postgres::Array names;
    for (const KeySource& key : table_.keys) names.Add(std::string_view(key.column));
    ASSIGN_OR_RETURN(const auto loose, replica_.connection().Execute(std::string(kLoose),
                                                                     replica_.rows().from, names));
    if (loose[0].Int("columns") == 0) return absl::OkStatus();
    if (!complete) {
      Keep({left_.begin(), left_.end()},
           "the source may have it under another spelling of its key, which could not be told, "
           "since rows moved or were only counted; compare again");
      return absl::OkStatus();
    }
    postgres::Array rows;
    for (const auto* const keys : {&std::as_const(left_), &missing}) {
      for (const RowKey& key : *keys) {
        nlohmann::ordered_json row;
        for (size_t i = 0; i < key.size(); ++i) row[table_.keys[i].column] = key[i];
        rows.Add(std::string_view(row.dump()));
      }
    }
    const std::string columns = fmt::format("{}", fmt::join(replica_.rows().keys, ", "));
    const auto alike = replica_.connection().Execute(
        postgres::FillNames(kAlike, {{"table", replica_.rows().from}, {"columns", columns}}), rows,
        static_cast<int64_t>(left_.size()));
    if (!alike.ok()) {
      return FailedPrecondition(
          "whether ghosts of {} are rows of the source under another spelling can't be told: {}",
          table_.name, MessageOf(alike.status()));
    }
    Keep(At(*alike, 0), "the source has it under another spelling of its key");
    return absl::OkStatus();
  }

  // "Absent" would be said of an aggregate that is there, under another key of the replica.
  absl::Status KeepWhatIsThere(const std::vector<size_t>& aggregate) {
    SideRows rows = source_.rows();
    std::vector<KeyType> types;
    rows.keys.clear();
    for (const size_t place : aggregate) {
      rows.keys.push_back(source_.rows().keys[place]);
      types.push_back(source_.types()[place]);
    }
    const VerifySide aggregates(source_.connection(), rows, types);
    std::set<RowKey> there;
    for (size_t i = 0; i < left_.size(); i += kKeysAtATime) {
      std::vector<RowKey> wanted;
      for (const RowKey& key : PageOf(left_, i)) {
        RowKey& of = wanted.emplace_back();
        for (const size_t place : aggregate) of.push_back(key[place]);
      }
      ASSIGN_OR_RETURN(const auto found, AskReadOnly(source_.connection(), aggregates.Sql(kThere),
                                                     aggregates.Wanted(wanted)));
      there.merge(At(found, i));
    }
    Keep(there,
         "the source has its aggregate, under another key; delete the row by an event of the "
         "source, or rebuild");
    return absl::OkStatus();
  }

 private:
  // Those whose places, from 1 after the first ones, are in column n.
  std::set<RowKey> At(const postgres::Result& answer, size_t first) const {
    std::set<RowKey> keys;
    for (const postgres::Row row : answer) {
      keys.insert(left_[first + static_cast<size_t>(row.Int("n")) - 1]);
    }
    return keys;
  }
  void Keep(const std::set<RowKey>& keys, const std::string& why) {
    for (const RowKey& key : keys) kept_.push_back({key, why});
    std::erase_if(left_, [&](const RowKey& key) { return keys.contains(key); });
  }

  const VerifyTable& table_;
  VerifySide& source_;
  VerifySide& replica_;
  std::vector<RowKey> left_;
  std::vector<RepairPlan::Kept> kept_;
};

// The declaration's keys of those rows that are still there.
absl::StatusOr<std::vector<publisher::KeyTexts>> SourceKeys(
    const publisher::Declaration& declaration, VerifySide& source,
    const std::vector<RowKey>& keys) {
  std::string more;
  std::vector<std::string> names;
  for (size_t i = 0; i < declaration.key.size(); ++i) {
    names.push_back(fmt::format("d{}", i + 1));
    more += fmt::format(", (r.{})::text AS {}", postgres::QuoteIdentifier(declaration.key[i]),
                        names.back());
  }
  const std::string sql = source.Sql(
      postgres::FillNames(kSourceKeys, {{"declared", fmt::format("{}", fmt::join(names, ", "))}}),
      more);
  std::vector<publisher::KeyTexts> found;
  for (size_t i = 0; i < keys.size(); i += kKeysAtATime) {
    ASSIGN_OR_RETURN(const auto rows,
                     AskReadOnly(source.connection(), sql, source.Wanted(PageOf(keys, i))));
    for (const postgres::Row row : rows) {
      publisher::KeyTexts& key = found.emplace_back();
      for (const std::string& name : names) key.push_back(row.String(name));
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<RepairPlan> PlanRepair(const publisher::Declaration& declaration,
                                      const VerifyTable& table, VerifySide& source,
                                      VerifySide& replica,
                                      const std::vector<Difference>& differences,
                                      const GhostOptions& options) {
  RepairPlan plan;
  std::vector<RowKey> wanted, missing;
  std::map<RowKey, const Difference*> ghosts;
  for (const Difference& one : differences) {
    if (one.kind == DifferenceKind::kAhead) {
      ++plan.ahead;
    } else if (!one.unmapped.empty()) {
      ++plan.unmapped;
    } else if (one.kind != DifferenceKind::kGhost) {
      wanted.push_back(one.key);
      if (one.kind == DifferenceKind::kMissing) missing.push_back(one.key);
    } else if (!options.remove) {
      ++plan.ghosts_left;
    } else {
      ghosts.emplace(one.key, &one);
    }
  }
  if (!ghosts.empty()) {
    ASSIGN_OR_RETURN(const auto aggregate, AggregatePlaces(declaration, table));
    std::vector<RowKey> keys;
    for (const auto& [key, one] : ghosts) keys.push_back(key);
    GhostSieve sieve(table, source, replica, std::move(keys));
    if (!options.whole_table) RETURN_IF_ERROR(sieve.KeepForeign(declaration));
    sieve.KeepOtherConstants();
    RETURN_IF_ERROR(sieve.KeepAlike(missing, options.complete));
    RETURN_IF_ERROR(sieve.KeepWhatIsThere(aggregate));
    ASSIGN_OR_RETURN(const auto there, ReadKeyTypes(source.connection(), table.source));
    for (const RowKey& key : sieve.left()) {
      plan.ghosts.push_back(
          GhostOf(declaration, table, aggregate, replica, there, *ghosts.at(key)));
    }
    plan.kept = std::move(sieve.kept());
  }
  ASSIGN_OR_RETURN(plan.keys, SourceKeys(declaration, source, wanted));
  plan.gone = static_cast<int64_t>(wanted.size()) - static_cast<int64_t>(plan.keys.size());
  return plan;
}

}  // namespace lockstep::verify
