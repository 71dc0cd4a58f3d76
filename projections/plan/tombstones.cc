#include "projections/plan/tombstones.h"

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::projections {
namespace {

constexpr std::string_view kTombstones = R"(
SELECT r.row_key, r.version FROM {state}.row_versions AS r
 WHERE r.consumer_group = $1 AND r.generation = $2::bigint AND r.projection = $3
   AND r.row_key = ANY ($4::text[]) AND r.deleted_at IS NOT NULL)";

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> ReadTombstones(
    postgres::Connection& connection, const std::string& state_schema, const std::string& group,
    int64_t generation, const std::string& projection, const std::vector<std::string>& row_keys) {
  postgres::Array keys;
  for (const std::string& key : row_keys) keys.Add(std::string_view(key));
  ASSIGN_OR_RETURN(
      const auto rows,
      connection.Execute(
          postgres::FillNames(kTombstones, {{"state", postgres::QuoteIdentifier(state_schema)}}),
          group, generation, projection, keys));
  std::map<std::string, int64_t> found;
  for (const postgres::Row row : rows) found.emplace(row.String("row_key"), row.Int("version"));
  return found;
}

}  // namespace lockstep::projections
