#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::examples {

struct Comparison {
  int64_t rows = 0;  // of the source
  int64_t equal = 0;
  std::vector<std::string> differences;  // a sentence each, ten at most
  int64_t different = 0;

  bool Equal() const { return different == 0; }
};

// The catalogue's videos against the read model's, row by row and column by column.
absl::StatusOr<Comparison> Compare(postgres::Connection& source, postgres::Connection& read_model);

}  // namespace lockstep::examples
