#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pubsub/admin.h"
#include "state/groups/epochs.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::runner {

// Recognises a database that went back (a restored backup, a standby that lagged) and heals it. Two
// witnesses outside it: a snapshot in Pub/Sub that is newer than the newest recorded checkpoint,
// and how often each lane of this process has committed. And one inside: the server or its timeline
// is another than the group last ran on, so something may be lost. The cure is a reset to the
// newest recorded checkpoint of the present epoch: its Seek redelivers at least what the database
// lacks, and the inbox absorbs the rest. A loss that can't be healed halts the group, with the
// reason.
class RestoreWitness {
 public:
  RestoreWitness(const state::Schema& schema, const state::Epochs& epochs, pubsub::Admin& admin,
                 std::string instance, bool checkpoints, Millis fence)
      : schema_(schema),
        epochs_(epochs),
        checkpoints_(schema, epochs.group()),
        admin_(admin),
        instance_(std::move(instance)),
        fence_(fence),
        enabled_(checkpoints) {}

  // On a lane's thread, before the first batch of a new connection. ABORTED when this database
  // lacks what this process has committed.
  absl::Status Accept(postgres::Connection& connection, const state::GroupEpoch& under, int lane);
  // On a lane's thread, after each commit that saved its offset.
  void Committed(const state::GroupEpoch& under, int lane);

  // On the group's thread, with each new connection of its own.
  absl::Status Meet(postgres::Connection& connection);
  // The same, each second: whether the database is not what it was, so that a session must end. A
  // fault of the connection answers no.
  bool WentBack(postgres::Connection& connection, const state::GroupEpoch& now);

  // Before a session, on the group's thread. Heals; answers what stands in the way, UNAVAILABLE if
  // that passes by itself. `lanes` of this process will run: offsets of more expire unseen.
  absl::Status Check(postgres::Connection& connection, const state::GroupEpoch& now, int lanes);

 private:
  struct Found {
    std::string how;                   // empty = nothing was found
    std::vector<std::string> unknown;  // snapshots
    // Not when all of them have numbers that were reserved: whoever took them may have died before
    // it recorded them; nor when only the server is another. The cure does those cases no harm.
    bool certain = false;
  };
  // What is stored; ABORTED when that lacks what this process has committed.
  absl::StatusOr<state::InstanceOffsets> Compare(postgres::Connection& connection);
  bool Moved(const state::GroupEpoch& now) const;
  absl::StatusOr<Found> Look(postgres::Connection& connection, const state::GroupEpoch& now,
                             const std::vector<state::Checkpoint>& recorded);
  absl::Status LookAndHeal(postgres::Connection& connection, const state::GroupEpoch& now);
  absl::Status Heal(postgres::Connection& connection, const state::GroupEpoch& now,
                    const std::vector<state::Checkpoint>& recorded, const Found& found);
  absl::Status NoteServer(postgres::Connection& connection, const state::GroupEpoch& now);
  void Remove(const std::vector<std::string>& snapshots);

  const state::Schema& schema_;
  const state::Epochs& epochs_;
  const state::Checkpoints checkpoints_;
  pubsub::Admin& admin_;
  const std::string instance_;
  const Millis fence_;
  bool enabled_;
  std::set<std::string> healed_;  // snapshots that we may not delete, and need not heal again

  std::string lineage_;  // of the server that the group's thread talks to; empty = not known

  struct Known {
    int64_t epoch = 0;
    std::string token;
    std::map<int, int64_t> commits{};  // by lane, under that epoch, as the database counts them
  };
  std::mutex mu_;
  Known known_;
};

}  // namespace lockstep::runner
