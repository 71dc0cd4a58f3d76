#include "state/groups/find_schemas.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kFind = R"(
SELECT n.nspname AS name
  FROM pg_catalog.pg_namespace n
 WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE')
   AND 3 = (SELECT count(*) FROM pg_catalog.pg_class c
             WHERE c.relnamespace = n.oid AND c.relkind = 'r'
               AND c.relname IN ('consumer_groups', 'slots', 'schema_migrations'))
 ORDER BY 1)";

}  // namespace

absl::StatusOr<std::vector<std::string>> FindSchemas(postgres::Executor& session) {
  ASSIGN_OR_RETURN(const auto rows, session.Execute(kFind));
  std::vector<std::string> names;
  for (const postgres::Row row : rows) names.push_back(row.String("name"));
  return names;
}

}  // namespace lockstep::state
