#include "verify/tombstones.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "projections/plan/tombstones.h"
#include "state/groups/overview.h"
#include "verify/session.h"

namespace lockstep::verify {
namespace {

constexpr std::string_view kRowKeys = "SELECT {row_key} AS row_key FROM {wanted} AS t ORDER BY t.n";

}  // namespace

absl::StatusOr<std::map<RowKey, int64_t>> FindDeleted(VerifySide& replica, const VerifyTable& table,
                                                      const state::Schema& schema,
                                                      const std::string& group,
                                                      const std::vector<RowKey>& keys) {
  if (!table.deleted.from.empty()) {
    return VerifySide(replica.connection(), table.deleted, replica.types()).Find(keys);
  }
  std::map<RowKey, int64_t> deleted;
  if (!table.hard_deletes || keys.empty()) return deleted;
  ASSIGN_OR_RETURN(const auto positions,
                   state::Overview(schema).Positions(replica.connection(), group));
  if (positions.empty()) return deleted;
  std::vector<std::string> columns;
  for (size_t i = 0; i < table.keys.size(); ++i) columns.push_back(fmt::format("t.k{}", i + 1));
  const std::string row_key = columns.size() == 1
                                  ? columns[0] + "::text"
                                  : fmt::format("ROW({})::text", fmt::join(columns, ", "));
  ASSIGN_OR_RETURN(const auto texts,
                   AskReadOnly(replica.connection(),
                               replica.Sql(postgres::FillNames(kRowKeys, {{"row_key", row_key}})),
                               replica.Wanted(keys)));
  std::vector<std::string> row_keys;
  for (const postgres::Row row : texts) row_keys.push_back(row.String("row_key"));
  ASSIGN_OR_RETURN(
      const auto found,
      projections::ReadTombstones(replica.connection(), schema.name(), group,
                                  positions[0].Int("generation"), table.projection, row_keys));
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto version = found.find(row_keys[i]);
    if (version != found.end()) deleted.emplace(keys[i], version->second);
  }
  return deleted;
}

}  // namespace lockstep::verify
