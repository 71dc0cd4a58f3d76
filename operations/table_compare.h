#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::operations {

// How two tables with the same columns differ.
struct TableComparison {
  std::string table;
  int64_t old_rows = 0;
  int64_t new_rows = 0;
  bool same_checksum = true;
  struct Difference {
    std::string key;
    std::string what;  // "is missing in the new table", "differs in title, version"; never a value
    int64_t rows = 0;  // of which the same is to be said
  };
  // By kind, the rarest first, so that many of one hide none of another; kShown of each at most.
  std::vector<Difference> differences;
  bool more = false;                   // more than kMax rows differ: the numbers are the least
  std::set<std::string> not_compared;  // for they can't be equal, or need not

  static constexpr int kMax = 100'000;
  static constexpr int kShown = 20;
  bool equal() const { return old_rows == new_rows && same_checksum; }
};

// Compares by row count and checksum and, where these differ, row by row. Left out are `ignored`
// columns, identities, and those whose default is a clock or a die: two builds of one table differ
// in them. REQUIRES: the tables have the same columns.
absl::StatusOr<TableComparison> CompareTables(postgres::Transaction& transaction,
                                              const std::string& old_table,
                                              const std::string& new_table,
                                              const std::set<std::string>& ignored);

}  // namespace lockstep::operations
