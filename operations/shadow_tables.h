#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::operations {

// The tables of a slot that is not active. They stand beside the live ones, under the live name
// with a suffix; so do their indexes and identity sequences, so that a swap is renames alone.
// Stateless; each call uses the caller's connection or transaction.
class ShadowTables {
 public:
  // `tables`: as declared, schema.table.
  explicit ShadowTables(std::vector<std::string> tables) : tables_(std::move(tables)) {}

  // What stands in the way of a rebuild, a sentence each: what is not a plain table, what a rename
  // would leave behind (views, triggers, foreign keys, …), missing rights, names taken or too long.
  absl::StatusOr<std::vector<std::string>> Obstacles(postgres::Connection& connection,
                                                     const std::string& suffix) const;

  // Empty tables like the live ones: columns, defaults, identity, generated columns, constraints,
  // indexes, storage, comments, grants and owner.
  absl::Status Create(postgres::Transaction& transaction, const std::string& suffix) const;

  // What has changed since they were made, a line each: then they are no longer like the originals.
  absl::StatusOr<std::vector<std::string>> Changes(postgres::Transaction& transaction,
                                                   const std::string& suffix) const;

  // The live tables go to `old_suffix`, those at `new_suffix` take their place. Readers wait for
  // the transaction's end and then find the new ones. Fails with lock_timeout's error (55P03) when
  // a reader does not end in time.
  absl::Status Swap(postgres::Transaction& transaction, const std::string& old_suffix,
                    const std::string& new_suffix) const;

  absl::Status Drop(postgres::Transaction& transaction, const std::string& suffix) const;

  // schema.table of the slot with this suffix.
  std::vector<std::string> names(const std::string& suffix) const;

 private:
  const std::vector<std::string> tables_;
};

}  // namespace lockstep::operations
