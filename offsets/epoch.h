#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offsets/state_schema.h"
#include "platform/clock.h"
#include "platform/strong_id.h"
#include "postgres/connection.h"

namespace lockstep::offsets {

enum class SeekKind { kNone, kTime, kSnapshot };
std::string_view Name(SeekKind kind);  // as it stands in the database

// The Seek that an epoch wants before its first stream opens.
struct WantedSeek {
  SeekKind kind = SeekKind::kNone;
  WallTime time;
  std::string snapshot;
};

// A group as it stood when it was read: under which epoch a stream is opened, and what it fills.
struct GroupEpoch {
  int group_id = 0;
  int64_t epoch = 0;
  std::string token;  // random: a restored counter repeats itself, a token does not
  int slot = 0;
  int generation = 0;  // stands for the group in the inbox
  std::string subscription;
  WantedSeek seek;
  bool seek_done = true;
  std::optional<WallTime> skip_before;      // deliveries published before it are acked unapplied
  std::optional<WallTime> overwrite_until;  // replay without emptying
  std::optional<WallTime> first_publish_time;
  int64_t lock_key = 0;  // of the advisory lock
  bool created = false;  // by this very call: the group's first start
};

// What an instance says about itself each second; `lockstepctl lag` and the progress bars read it.
struct InstanceReport {
  int lanes = 0;
  int64_t handled = 0;  // messages brought to an end under this epoch
  int64_t queued = 0;
  std::vector<int> idle_lanes;  // with nothing in hand: they don't hold the group's offset back
  std::optional<Millis> publish_lag, receive_lag, commit_lag;  // of the last commit
  std::optional<Millis> lag;  // how old its read model is: idle is 0, stuck grows
  std::string lag_basis;      // what that is measured by, in words
  std::string state;          // the word on its status page
};

// The epochs of one group. Every batch holds the group's advisory lock shared and checks that the
// epoch is still its own; whoever changes it (reset, rebuild) takes the lock exclusively: so
// nothing of an older epoch commits after a change. Safe from any thread, with connections of
// the callers' own.
class Epochs {
 public:
  Epochs(const StateSchema& schema, ConsumerGroup group);

  // NOT_FOUND before the group's first start.
  absl::StatusOr<GroupEpoch> Load(postgres::Connection& connection) const;

  // Makes the group with its first slot if it is not there yet; `first` counts only then.
  absl::StatusOr<GroupEpoch> LoadOrCreate(postgres::Connection& connection,
                                          const std::string& subscription, const WantedSeek& first,
                                          const std::string& by) const;

  // Begins a transaction under the epoch's lock, shared. ABORTED (and nothing else is) when the
  // group has moved on to another epoch: drop what came under the old one.
  absl::StatusOr<postgres::Transaction> Begin(postgres::Connection& connection,
                                              const GroupEpoch& under) const;

  // The same for a caller whose first statement reads the epoch and its token itself, and who asks
  // Check about them: lock and statement are one round trip.
  absl::StatusOr<postgres::Transaction> BeginUnchecked(postgres::Connection& connection,
                                                       const GroupEpoch& under) const;
  // REQUIRES: the first two columns are the group's epoch and epoch_token.
  absl::Status Check(const GroupEpoch& under, const postgres::Result& rows) const;

  // The same lock exclusively, inside the caller's transaction; waits for the batches under way.
  absl::Status LockExclusively(postgres::Transaction& transaction) const;

  // The Seek that an epoch wants is performed by exactly one: whoever claims it. A claim whose
  // owner died is free again after `takeover`. False = somebody else has it, it is done, or acks
  // of the epoch before may still be under way (`seek_not_before`).
  absl::StatusOr<bool> ClaimSeek(postgres::Connection& connection, const GroupEpoch& under,
                                 const std::string& owner, Millis takeover) const;
  // False = it was no longer ours to mark: the claim was taken over, or the epoch is over.
  absl::StatusOr<bool> MarkSeekDone(postgres::Connection& connection, const GroupEpoch& under,
                                    const std::string& owner) const;

  // Gives a claim back after a Seek that failed.
  absl::Status ReleaseSeek(postgres::Connection& connection, const GroupEpoch& under,
                           const std::string& owner) const;

  // Says that an instance is alive: its offsets count while it does so.
  absl::Status Heartbeat(postgres::Connection& connection, const GroupEpoch& under,
                         const std::string& instance, const InstanceReport& report) const;
  // Its offsets no longer count (a clean stop).
  absl::Status Leave(postgres::Connection& connection, const std::string& instance) const;

  const ConsumerGroup& group() const { return group_; }

 private:
  const StateSchema schema_;
  const ConsumerGroup group_;
  const StateStatement load_;
  const StateStatement create_;
  const StateStatement lock_;
  const StateStatement current_;
  const StateStatement claim_seek_;
  const StateStatement seek_done_;
  const StateStatement release_seek_;
  const StateStatement heartbeat_;
  const StateStatement leave_;
};

// Whether `status` says that the epoch is over.
bool IsStaleEpoch(const absl::Status& status);

}  // namespace lockstep::offsets
