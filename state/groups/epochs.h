#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "state/positions/seek_target.h"
#include "state/schema.h"

namespace lockstep::state {

// A group as it stood when it was read: under which epoch a stream is opened, and what it fills.
struct GroupEpoch {
  int group_id = 0;
  int64_t epoch = 0;
  std::string token;  // random: a restored counter repeats itself, a token does not
  int slot = 0;
  int generation = 0;        // stands for the group in the inbox
  bool by_versions = false;  // events are known again by key_state, not by the inbox
  std::string subscription;
  SeekTarget seek;  // wanted before its first stream opens
  bool seek_done = true;
  std::optional<WallTime> skip_before;      // deliveries published before it are acked unapplied
  std::optional<WallTime> overwrite_until;  // replay without emptying
  std::optional<WallTime> first_publish_time;
  std::string lineage;   // of the server that it last ran on; empty = not known
  WallTime began;        // what was published before may be a replay
  int64_t lock_key = 0;  // of the advisory lock
  // Other generations of the group in which events may have been handled, as Postgres writes an
  // array; empty = none.
  std::string other_generations;
  // An operator's, in words for whoever wonders why nothing is applied; empty = it is not paused.
  std::string paused;
  bool created = false;  // by this very call: the group's first start
};

// How an epoch begins, when a reset or a rebuild ends the one before.
struct NewEpoch {
  SeekTarget seek;
  Millis fence{0};     // the Seek waits so long for what was sent under the old epoch
  Millis takeover{0};  // a Seek that is being performed may go on so long
  std::optional<WallTime> skip_before;
  bool overwrite = false;
  std::optional<WallTime> overwrite_until;  // none = all that is published now …
  std::optional<WallTime> committed;        // … and up to here, by Pub/Sub's clock
  std::string by;
};

// The epochs of one group. Every batch holds the group's advisory lock shared and checks that the
// epoch is still its own; whoever changes it (reset, rebuild) takes the lock exclusively: so
// nothing of an older epoch commits after a change. The table: consumer_groups; a new group comes
// with its slot.
class Epochs : public GroupStore {
 public:
  Epochs(const Schema& schema, ConsumerGroup group);

  // NOT_FOUND before the group's first start.
  absl::StatusOr<GroupEpoch> Load(postgres::Executor& on) const;

  // Makes the group with its first slot if it is not there yet; `first` counts only then.
  absl::StatusOr<GroupEpoch> LoadOrCreate(postgres::Connection& connection,
                                          const std::string& subscription, const SeekTarget& first,
                                          const std::string& by) const;

  // Begins a transaction under the epoch's lock, shared. ABORTED (and nothing else is) when the
  // group has moved on to another epoch: drop what came under the old one.
  absl::StatusOr<postgres::Transaction> Begin(postgres::Connection& connection,
                                              const GroupEpoch& under) const;

  // The same for a caller whose first statement reads the epoch and its token itself, and who asks
  // Check about them: lock and statement are one round trip.
  absl::StatusOr<postgres::Transaction> BeginUnchecked(postgres::Connection& connection,
                                                       const GroupEpoch& under) const;
  // A group that is paused is under no epoch. REQUIRES: a row of the group, with `epoch`,
  // `epoch_token` and `paused_at`.
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

  // Answers its number. REQUIRES: the lock is held exclusively.
  absl::StatusOr<int64_t> BeginNew(postgres::Transaction& transaction, const NewEpoch& epoch) const;

  // Which server this is, and on which timeline: a promoted standby and a recovered backup begin
  // one of their own. Empty where the server does not tell; an error from a standby, which may be
  // promoted the next moment.
  static absl::StatusOr<std::string> Lineage(postgres::Connection& connection);
  // From now on the group runs on that server. A move from another goes into the audit.
  absl::Status NoteLineage(postgres::Connection& connection, const std::string& lineage,
                           const std::string& by) const;

  // For those who ask from outside: whether key_state has every aggregate's version from now on,
  // and whether handlers must know what they have handled before.
  absl::Status NoteNeeds(postgres::Connection& connection, bool follows_versions,
                         bool minds_replays) const;

  // Nothing is applied from now on, until Resume; waits for the batches under way. False = it was
  // so already. Audited.
  absl::StatusOr<bool> Pause(postgres::Transaction& transaction, const std::string& by,
                             const std::string& reason) const;
  absl::StatusOr<bool> Resume(postgres::Transaction& transaction, const std::string& by,
                              const std::string& reason) const;

  // The group, with its slots.
  absl::Status Forget(postgres::Transaction& transaction) const;

 private:
  const Statement load_;
  const Statement current_;
};

// Whether `status` says that the epoch is over.
bool IsStaleEpoch(const absl::Status& status);

}  // namespace lockstep::state
