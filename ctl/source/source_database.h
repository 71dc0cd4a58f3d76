#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

namespace lockstep::ctl {

// The other database of a command that looks at both ends: --source and its outboxes.
struct SourceDatabase {
  std::string url;            // --source
  std::string password_file;  // --source-password-file
  std::vector<std::string> outboxes;

  bool given() const { return !url.empty(); }
  // A session that could not write if it wanted to.
  absl::StatusOr<std::unique_ptr<postgres::Connection>> Connect(
      Millis statement_timeout = Millis(30'000)) const;
  // Those that are named; none = all of the database.
  absl::StatusOr<std::vector<postgres::QualifiedName>> Tables(
      postgres::Connection& connection) const;
};

}  // namespace lockstep::ctl
