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
  };
  std::vector<Difference> differences;  // kMax at most
  bool more = false;                    // there are more than these

  static constexpr int kMax = 1'000;
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
