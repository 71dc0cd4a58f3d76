#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

// How far the comparison of one table with its source has come, under a lease.
struct Verification {
  std::string backfill, projection;
  std::string token;                               // of the lease
  std::optional<std::vector<std::string>> cursor;  // keys below it are compared
  std::string keyed_by;                            // what keys are made of; empty = there are none
  WallTime began_at;                               // of the pass under way, or that begins now
  WallTime now;                                    // by the same clock
  int failures = 0;                                // tries in a row that came to nothing
  bool due = false;    // the next range is; else only what was found is looked at again
  int64_t listed = 0;  // differences that are kept
};

// A row that differs, as it is kept: its key, and how.
struct ListedDifference {
  std::vector<std::string> key;
  std::string kind;
};

// What a scheduled comparison of a group keeps (runner/verify): all SQL on verifications and
// verify_differences. A lease is a token's until its time is over; no session holds a lock.
class Verifications : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // These (backfill, projection) are compared from now on; what nobody has wanted for a week is
  // forgotten.
  absl::Status Declare(postgres::Connection& connection,
                       const std::vector<std::pair<std::string, std::string>>& wanted) const;

  struct Pace {
    Millis every{0};  // a pass
    Millis again{0};  // what was found is looked at
    Millis lease{0};
  };
  // One of those that are due and nobody's, the longest waiting first.
  absl::StatusOr<std::optional<Verification>> Claim(
      postgres::Connection& connection,
      const std::vector<std::pair<std::string, std::string>>& wanted, const std::string& owner,
      const Pace& pace) const;
  // These answer false when the lease is another's by now; nothing was written then.
  absl::StatusOr<bool> Renew(postgres::Connection& connection, const Verification& lease,
                             Millis time) const;

  // Keys are made of something else from now on: the pass begins anew, at once, and what was listed
  // is forgotten. The lease follows.
  absl::StatusOr<bool> Rekey(postgres::Connection& connection, Verification& lease,
                             const std::string& keyed_by) const;

  struct Range {
    std::optional<std::vector<std::string>> next;  // the new cursor; none = the pass is over
    int64_t rows = 0;
    int64_t undecided = 0;
    int64_t uncounted = 0;  // differences without a key
    std::vector<ListedDifference> differences;
    Millis pause{0};  // until the next range
    Millis every{0};  // until the next pass, since this one began
  };
  // A range was compared, and the lease ends. At most `kMostListed` differences of a table are
  // kept; what is beyond is counted.
  static constexpr int64_t kMostListed = 10'000;
  absl::StatusOr<bool> Advance(postgres::Connection& connection, const Verification& lease,
                               const Range& range) const;

  // Those of the kept differences that have waited longest for another look, and their keys' fate:
  // `gone` are none any more.
  absl::StatusOr<std::vector<ListedDifference>> Listed(postgres::Connection& connection,
                                                       const Verification& lease,
                                                       int at_most) const;
  absl::StatusOr<bool> Looked(postgres::Connection& connection, const Verification& lease,
                              const std::vector<ListedDifference>& still,
                              const std::vector<std::vector<std::string>>& gone) const;

  // The lease ends; the next try is after `delay`, with a word on why.
  absl::StatusOr<bool> Fail(postgres::Connection& connection, const Verification& lease,
                            const std::string& error, Millis delay) const;
  absl::Status Release(postgres::Connection& connection, const Verification& lease) const;

  // For the status page: a row per table that is wanted: backfill, projection, began_at, pass_rows,
  // passed_at, rows, undecided, unlisted (differences that are only counted), created_at,
  // last_error, failures, owner, and a number per class of differences.
  absl::StatusOr<postgres::Result> List(postgres::Connection& connection) const;
};

}  // namespace lockstep::state
