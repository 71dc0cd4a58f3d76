#include "postgres/server_load.h"

#include "platform/status.h"

namespace lockstep::postgres {
namespace {

// What is kept for superusers is none of ours. Counted as the statistics have it, which asks for no
// right and looks at no session.
constexpr char kLoad[] = R"sql(
SELECT (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database)::bigint AS connections,
       current_setting('max_connections')::bigint -
         current_setting('superuser_reserved_connections')::bigint AS most)sql";

}  // namespace

ServerLoad::ServerLoad(MetricsRegistry& metrics, const std::string& role)
    : connections_(GaugeOf(metrics, "database_connections",
                           "Connections that the database's server has, of whomever",
                           {{"role", role}})),
      most_(GaugeOf(metrics, "database_connections_max",
                    "Connections that the server allows to those who are no superusers",
                    {{"role", role}})) {}

absl::Status ServerLoad::Read(Connection& connection) {
  ASSIGN_OR_RETURN(const Result load, connection.Execute(kLoad));
  connections_.Set(static_cast<double>(load[0].Int("connections")));
  most_.Set(static_cast<double>(load[0].Int("most")));
  return absl::OkStatus();
}

}  // namespace lockstep::postgres
