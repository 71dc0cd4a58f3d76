#include "state/schema.h"

#include <fmt/format.h>

#include "postgres/identifier.h"
#include "sql/migrations.h"

namespace lockstep::state {

Schema::Schema(std::string name)
    : name_(std::move(name)), quoted_(postgres::QuoteIdentifier(name_)) {}

std::string Schema::Sql(std::string_view text) const {
  return postgres::FillNames(text, {{"state", quoted_}});
}

absl::Status Schema::Check(postgres::Connection& connection) const {
  return postgres::CheckSchemaVersion(
      connection, name_, sql::StateMigrations(),
      fmt::format("lockstepctl migrate up --set state --schema {}", name_));
}

}  // namespace lockstep::state
