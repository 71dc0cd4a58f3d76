#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "projections/write/group_projector.h"
#include "publisher/backfill/declaration.h"
#include "verify/plan.h"
#include "verify/verify.h"

namespace lockstep::verify {

// Compares values: rows of the source become snapshots, as a backfill would send them, go through
// the projection, and are compared with the replica's rows of the same version, in its database and
// as its types. Columns that say when or by which event a row was written are left out. Owned by
// one thread.
class DeepCompare {
 public:
  // Of the source, payloads of about so many bytes are read at a time. REQUIRES: all outlive it.
  static absl::StatusOr<std::unique_ptr<DeepCompare>> Make(
      const publisher::Declaration& declaration, const projections::GroupProjector& projector,
      const VerifyTable& table, VerifySide& source, VerifySide& replica,
      int64_t page_bytes = 16 << 20);
  ~DeepCompare();

  // Appends rows of the same version that hold other values, and those that the replica has in
  // another version or not at all: their versions differ, their columns are empty. And rows that
  // can't go through the projection.
  absl::Status InRange(const KeyRange& range, std::vector<Difference>* found);
  absl::Status OfKeys(const std::vector<RowKey>& keys, std::vector<Difference>* found);

 private:
  struct Parts;
  explicit DeepCompare(std::unique_ptr<Parts> parts);
  absl::Status Compare(const postgres::Result& rows, std::vector<Difference>* found);

  std::unique_ptr<Parts> parts_;
  int64_t page_bytes_ = 0;
};

}  // namespace lockstep::verify
