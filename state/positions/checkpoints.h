#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// A Pub/Sub snapshot that was taken before this row was written: a database that holds the row can
// be healed by a Seek to it.
struct Checkpoint {
  int64_t number = 0;
  std::string snapshot;
  std::string subscription;
  int64_t epoch = 0;
  WallTime taken_at;
  std::optional<WallTime> expires_at;
};

// The recorded checkpoints of one group.
class Checkpoints : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // One at a time takes a checkpoint or compares them with Pub/Sub. The lock is the session's.
  absl::StatusOr<bool> TryLock(postgres::Connection& connection) const;
  absl::Status Unlock(postgres::Connection& connection) const;

  // Newest first.
  absl::StatusOr<std::vector<Checkpoint>> List(postgres::Connection& connection) const;
  // A checkpoint's number is reserved before its snapshot is made: a snapshot with a number beyond
  // that tells that the database went back.
  absl::StatusOr<int64_t> Newest(postgres::Connection& connection) const;  // number; 0 = none
  absl::Status Reserve(postgres::Connection& connection, const Checkpoint& checkpoint) const;
  absl::Status Record(postgres::Transaction& transaction, const Checkpoint& checkpoint) const;
  absl::Status Forget(postgres::Connection& connection, int64_t number) const;

  // projects/p/subscriptions/s, 7 -> projects/p/snapshots/s.cp-7; and back, for this subscription.
  static std::string SnapshotName(const std::string& subscription, int64_t number);
  static std::optional<int64_t> NumberOf(const std::string& snapshot,
                                         const std::string& subscription);
};

}  // namespace lockstep::state
