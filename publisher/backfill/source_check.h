#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "publisher/backfill/declaration.h"

namespace lockstep::publisher {

// What stands in the way of a backfill, and how large it will be.
struct SourceReport {
  std::vector<std::string> problems;  // none = it can start
  std::vector<std::string> warnings;
  int64_t rows = 0;      // counted, or the planner's guess
  bool counted = false;  // every row was looked at

  nlohmann::ordered_json ToJson() const;
};

// Looks at the source with the rights of `connection`. `scan` reads all of it: NULLs, repeated
// keys and aggregates, and rows whose version is behind the outbox's; without it only what the
// catalogue tells. A status is a database that can't be asked, not a source that is unfit.
absl::StatusOr<SourceReport> CheckSource(postgres::Connection& connection,
                                         const Declaration& declaration, bool scan);

// A sentence when two rows are of one aggregate, else empty. A snapshot says how a whole aggregate
// stands, and of two at one version consumers take the second for the first come again. Reads all
// of the source unless its key or a unique index says that there are none.
absl::StatusOr<std::string> FindTwins(postgres::Connection& connection,
                                      const Declaration& declaration);

}  // namespace lockstep::publisher
