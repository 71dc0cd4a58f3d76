#pragma once

#include <functional>
#include <optional>
#include <string>

#include "offsets/fence.h"
#include "pubsub/admin.h"
#include "runner/seek/obstacle.h"
#include "state/groups/epochs.h"

namespace lockstep::runner {

struct SeekTiming {
  Millis takeover = offsets::kSeekTakeover;  // a claim that old is free for others
  Millis valid = offsets::kAckFence;         // a claim that old is not acted upon any more
  Millis fence = offsets::kSeekFence;        // of a reset that repairs
};

// For tests, which stop a performer at the two moments that matter.
struct SeekHooks {
  std::function<void()> after_claim;
  std::function<void()> before_seek;  // after its last look
};

// Performs the Seek that an epoch wants, so that exactly one runner does and no stream opens before
// it is done. The claim is a row in the database; acks of the epoch before are waited for by the
// claim itself (`seek_not_before`). Runs on the group's thread.
//
// A performer that was stopped between its claim and its Seek does not send it once the claim is
// old. Should its Seek go out although the group has moved on, it asks for the present epoch's
// Seek again: that redelivers, which the inbox absorbs, where silence would lose.
class SeekPerformer {
 public:
  SeekPerformer(const state::Schema& schema, const state::Epochs& epochs, pubsub::Admin& admin,
                std::string instance, SeekTiming timing, SeekHooks hooks = {});

  // Nothing when the epoch's Seek is done and marked.
  std::optional<Obstacle> Pass(postgres::Connection& connection, const state::GroupEpoch& under);

 private:
  absl::Status Seek(const state::GroupEpoch& under);
  Obstacle Repair(postgres::Connection& connection, const state::GroupEpoch& under);

  const state::Schema& schema_;
  const state::Epochs& epochs_;
  pubsub::Admin& admin_;
  const std::string instance_;
  const SeekTiming timing_;
  const SeekHooks hooks_;
};

}  // namespace lockstep::runner
