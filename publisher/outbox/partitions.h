#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// The partitions of an outbox that has them (sql/outbox, 5.): events and log by ranges of the
// sequence, one for each day or hour.
namespace lockstep::publisher {

// Makes those of now and of the next two days (hours), as far as they are not there. Answers how
// many it made.
absl::StatusOr<int64_t> MakePartitions(postgres::Connection& connection,
                                       const postgres::QualifiedName& table);

// Rows come into the partition of now from now on, if it is there. Answers whether they did not
// before. Waits for writers, but not for long: then IsBusy.
absl::StatusOr<bool> AdvancePartition(postgres::Connection& connection,
                                      const postgres::QualifiedName& table);

struct DroppedPartition {
  std::string name;  // empty = there is none to drop
  // With none to drop: old rows that were published stand below this sequence, in partitions that
  // stay because of rows that were not; 0 = there are none.
  int64_t stays_below = 0;
};
// Drops the oldest partition whose rows were all published so long ago. Waits for readers and
// writers, but not for long: then IsBusy.
absl::StatusOr<DroppedPartition> DropPartition(postgres::Connection& connection,
                                               const postgres::QualifiedName& table,
                                               Millis older_than);

// Others have locked the outbox: it is to be tried later.
bool IsBusy(const absl::Status& status);

}  // namespace lockstep::publisher
