#include "ctl/source/source_database.h"

#include <nlohmann/json.hpp>

#include "platform/config/database_address.h"
#include "platform/status.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::ctl {

absl::StatusOr<std::unique_ptr<postgres::Connection>> SourceDatabase::Connect(
    Millis statement_timeout) const {
  postgres::ConnectionOptions options;
  options.url = url;
  options.statement_timeout = statement_timeout;
  if (!password_file.empty()) options.url = WithPasswordFile(url, password_file);
  options.application_name = "lockstepctl";
  options.settings = "SET default_transaction_read_only = on; ";
  auto connection = postgres::Connection::Open(options);
  if (connection.ok()) return connection;
  return Unavailable("the source's database (--source): {}", MessageOf(connection.status()));
}

absl::StatusOr<std::vector<postgres::QualifiedName>> SourceDatabase::Tables(
    postgres::Connection& connection) const {
  std::vector<std::string> names = outboxes;
  if (names.empty()) {
    ASSIGN_OR_RETURN(const auto all, publisher::ListOutboxes(connection));
    for (const auto& outbox : all) names.push_back(outbox["outbox"].get<std::string>());
  }
  if (names.empty()) return NotFound("the source's database has no outbox");
  std::vector<postgres::QualifiedName> tables;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(auto table, postgres::QualifiedName::Parse(name));
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace lockstep::ctl
