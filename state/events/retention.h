#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// What one group need not remember any longer. Each call takes a few rows and commits, so that it
// never holds up a lane; whoever gets as many as `limit` comes again.
class Retention : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // Events that were received so long ago, by the database's clock and by `now`, the caller's: one
  // that leaps ahead must not make them forgotten. And the tombstones of hard deletes, which live
  // a day longer, and as long as an open dead letter could bring something older back.
  absl::StatusOr<int64_t> ForgetEvents(postgres::Connection& connection, WallTime now, Millis age,
                                       int limit) const;
  absl::StatusOr<int64_t> ForgetTombstones(postgres::Connection& connection, WallTime now,
                                           Millis age, int limit) const;

  // Dead letters that were replayed or discarded so long ago.
  absl::StatusOr<int64_t> ForgetResolved(postgres::Connection& connection, Millis age,
                                         int limit) const;

  // Instances that were killed (one that stops says so itself), and offsets of lanes that are gone.
  absl::Status ForgetGone(postgres::Connection& connection, WallTime now) const;

  // The newest generation that is retired, if any is.
  absl::StatusOr<std::optional<int>> NewestRetired(postgres::Connection& connection) const;
  // Rows of retired generations, whatever their age; but events as ForgetEvents does where the
  // group's handlers mind what they have handled before.
  absl::StatusOr<int64_t> ForgetRows(postgres::Connection& connection, WallTime now, Millis age,
                                     int limit) const;
  // The instances that were seen within the last minute.
  absl::StatusOr<std::vector<std::string>> Alive(postgres::Executor& database) const;
  // All that is kept of a group, but the audit and the rows of its generations: those are retired
  // with it, for ForgetRows. Audited. REQUIRES: its epoch is locked exclusively, no rebuild stands,
  // and nobody is alive.
  absl::Status RemoveGroup(postgres::Transaction& transaction, const std::string& by,
                           const std::string& reason) const;

  // Those up to this one whose events are forgotten. REQUIRES: their other rows are gone.
  absl::Status ForgetRetired(postgres::Connection& connection, int newest) const;
};

// What was audited so long ago, of all groups; never what is younger than 30 days.
absl::StatusOr<int64_t> ForgetAudits(postgres::Connection& connection, const Schema& schema,
                                     Millis age, int limit);

// What the inbox of all groups takes on disk, with its indexes.
absl::StatusOr<int64_t> InboxBytes(postgres::Connection& connection, const Schema& schema);

}  // namespace lockstep::state
