#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "state/schema.h"

namespace lockstep::state {

// What the database holds about one aggregate: a row of key_state, locked.
struct KeyRow {
  bool exists = false;
  std::optional<int64_t> settled;   // every version up to it has found its end
  std::string last_event;           // which event `settled` was; empty = not known, or none was
  std::optional<int64_t> blocked;   // a dead version; later ones wait for it
  std::optional<int64_t> snapshot;  // the newest snapshot's version; it stands for all before it
  bool open = false;                // the next version past `settled` need not follow it
  int parked = 0;                   // events that wait, in the database

  friend bool operator==(const KeyRow&, const KeyRow&) = default;
};

// What an operator does about versions that never come.
struct GapSkip {
  std::string aggregate_key;
  int64_t to = 0;  // the version that need not wait for them any longer
  std::string operator_name;
  std::string reason;
};

using KeyRows = std::map<std::string, KeyRow>;

// Of the columns aggregate_key (NULL = no row), settled_version, last_event, blocked_version,
// snapshot_version, parked, open.
KeyRows ReadKeyRows(const postgres::Result& rows);

// The rows of key_state, for what is not a batch's usual way (see Opening).
class KeyStates {
 public:
  explicit KeyStates(const Schema& schema);

  // Locks the rows that are there. REQUIRES: keys in order.
  absl::StatusOr<KeyRows> Lock(postgres::Transaction& transaction, int generation,
                               const std::vector<std::string>& keys) const;

  // Those that are there, as they are now; they may be other ones at once.
  absl::StatusOr<KeyRows> Read(postgres::Connection& connection, int generation,
                               const std::vector<std::string>& keys) const;

  // As Lock, having made those that are not there, with the snapshots given.
  absl::StatusOr<KeyRows> Make(
      postgres::Transaction& transaction, int generation,
      const std::vector<std::pair<std::string, std::optional<int64_t>>>& keys) const;
  // REQUIRES: locked in this transaction. A row that says nothing any more is deleted.
  absl::Status Save(postgres::Transaction& transaction, int generation, const KeyRows& rows) const;

  // Where versions are no longer followed: what was settled would grow stale, and hold events back
  // on the day that they are followed again.
  absl::Status ForgetVersions(postgres::Connection& connection, int generation) const;

  // Aggregates with parked events that nothing blocks (left behind by a crash between a release and
  // its continuation), at most `limit`.
  // `gaps`: a version that has not come holds those after it back.
  absl::StatusOr<std::vector<std::string>> Releasable(postgres::Connection& connection,
                                                      int generation, int limit,
                                                      bool gaps = true) const;

  // How far groups have come with aggregates, question by question: `follows` (NULL = there is no
  // such group) and `settled` (NULL = nothing of it has come).
  struct Question {
    std::string group;
    envelope::Aggregate aggregate;
  };
  absl::StatusOr<postgres::Result> Settled(postgres::Connection& connection,
                                           const std::vector<Question>& questions) const;

  // A reset forward leaves events out on purpose: what waits for them waits no longer.
  absl::Status SkipGaps(postgres::Transaction& transaction, int generation) const;

  // What waits in the group's active slot. Counting is bounded: beyond that the number tells no
  // more than "very many".
  struct Waiting {
    int64_t keys = 0;
    int64_t events = 0;
  };
  absl::StatusOr<Waiting> CountWaiting(postgres::Connection& connection,
                                       const ConsumerGroup& group) const;
  // The newest version received less the one stored, of the aggregate that is furthest behind.
  absl::StatusOr<int64_t> VersionLag(postgres::Connection& connection,
                                     const ConsumerGroup& group) const;
  // Aggregates that wait, in order: aggregate_key, parked, waits_for (a version), first_parked,
  // since; and of the dead letter that blocks it dead_letter, code, reason. `key`: that one alone.
  absl::StatusOr<postgres::Result> ListWaiting(postgres::Connection& connection,
                                               const ConsumerGroup& group, int limit,
                                               const std::string& key = "") const;

  // An operator gives up the versions of the aggregate that have not come before this one; audited.
  // REQUIRES: locked in this transaction.
  absl::Status SkipTo(postgres::Transaction& transaction, const ConsumerGroup& group,
                      int generation, const GapSkip& skip) const;

 private:
  const Schema schema_;
  const Statement lock_;
  const Statement make_;
  const Statement save_;
  const Statement forget_;
};

}  // namespace lockstep::state
