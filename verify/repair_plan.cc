#include "verify/repair_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::verify {
namespace {

constexpr std::string_view kSourceKeys = R"(
SELECT {declared} FROM {wanted} AS w JOIN {rows} AS t ON {matched} ORDER BY w.n)";
constexpr size_t kKeysAtATime = 1'000;

// The part of a replica's key that comes from a column of the source.
std::optional<std::string> PartOf(const VerifyTable& table, const RowKey& key,
                                  const std::string& column) {
  for (size_t i = 0; i < table.keys.size(); ++i) {
    if (table.keys[i].source_column == column) return key[i];
  }
  return std::nullopt;
}

absl::StatusOr<publisher::Ghost> GhostOf(const publisher::Declaration& declaration,
                                         const VerifyTable& table, const Difference& row) {
  publisher::Ghost ghost{.version = row.replica_version.value_or(0),
                         .payload = nlohmann::ordered_json::object()};
  const auto id = PartOf(table, row.key, declaration.aggregate_id);
  const auto tenant = PartOf(table, row.key, declaration.tenant);
  if (!id || (!declaration.tenant.empty() && !tenant)) {
    return FailedPrecondition(
        "the key of {} does not hold {}, so a ghost's aggregate can't be told; delete these rows "
        "by events of the source",
        table.name, id ? declaration.tenant : declaration.aggregate_id);
  }
  ghost.aggregate_id = *id;
  if (!declaration.tenant.empty()) ghost.tenant_id = tenant;
  for (const std::string& column : declaration.key) {
    const auto part = PartOf(table, row.key, column);
    if (!part) {
      ghost.key.clear();
      break;
    }
    ghost.key.push_back(*part);
  }
  for (size_t i = 0; i < table.keys.size(); ++i) {
    if (!table.keys[i].field.empty()) ghost.payload[table.keys[i].field] = row.key[i];
  }
  return ghost;
}

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
    const std::vector<RowKey> page(keys.begin() + i,
                                   keys.begin() + std::min(i + kKeysAtATime, keys.size()));
    ASSIGN_OR_RETURN(const auto rows, source.connection().Execute(sql, source.Wanted(page)));
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
                                      const std::vector<Difference>& differences,
                                      bool delete_ghosts) {
  RepairPlan plan;
  std::vector<RowKey> wanted;
  for (const Difference& one : differences) {
    if (one.kind == DifferenceKind::kAhead) {
      ++plan.ahead;
    } else if (one.kind != DifferenceKind::kGhost) {
      wanted.push_back(one.key);
    } else if (!delete_ghosts) {
      ++plan.ghosts_left;
    } else {
      ASSIGN_OR_RETURN(plan.ghosts.emplace_back(), GhostOf(declaration, table, one));
    }
  }
  ASSIGN_OR_RETURN(plan.keys, SourceKeys(declaration, source, wanted));
  plan.gone = static_cast<int64_t>(wanted.size()) - static_cast<int64_t>(plan.keys.size());
  return plan;
}

}  // namespace lockstep::verify
