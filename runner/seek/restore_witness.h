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

// Recognises a database that went back (a restored backup, a lost replica) and heals it. Two
// witnesses outside it: a snapshot in Pub/Sub that is newer than the newest recorded checkpoint,
// and what this process knows to have committed. The cure is a reset to the newest recorded
// checkpoint of the present epoch: its Seek redelivers at least what the restored state lacks, and
// the inbox absorbs the rest. What can't be healed halts the group, with the reason.
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

  // On the lanes' threads, after each commit.
  void Committed(const state::GroupEpoch& under, int lane, WallTime publish_time);

  // Whether the database lacks what this process has committed. On the lanes' threads, before the
  // first batch of a new connection. A fault of the connection answers no: there is no batch then.
  bool WentBack(postgres::Connection& connection);

  // Before a session, on the group's thread. Heals; answers what stands in the way, UNAVAILABLE if
  // that passes by itself.
  absl::Status Check(postgres::Connection& connection, const state::GroupEpoch& now);

 private:
  struct Found {
    std::string how;                   // empty = nothing was found
    std::vector<std::string> unknown;  // snapshots
    // Not when all of them have numbers that were reserved: whoever took them may have died before
    // it recorded them. The two look alike, and the cure does that case no harm.
    bool certain = false;
  };
  absl::StatusOr<Found> Look(postgres::Connection& connection, const state::GroupEpoch& now,
                             const std::vector<state::Checkpoint>& recorded);
  absl::Status LookAndHeal(postgres::Connection& connection, const state::GroupEpoch& now);
  absl::Status Heal(postgres::Connection& connection, const state::GroupEpoch& now,
                    const std::vector<state::Checkpoint>& recorded, const Found& found);
  void Remove(const std::vector<std::string>& snapshots);

  const state::Schema& schema_;
  const state::Epochs& epochs_;
  const state::Checkpoints checkpoints_;
  pubsub::Admin& admin_;
  const std::string instance_;
  const Millis fence_;
  bool enabled_;
  std::set<std::string> healed_;  // snapshots that we may not delete, and need not heal again

  struct Known {
    int64_t epoch = 0;
    std::string token;
    std::map<int, WallTime> committed{};  // by lane, under that epoch
  };
  std::mutex mu_;
  Known known_;
};

}  // namespace lockstep::runner
