#pragma once

#include <functional>
#include <string>

#include "pubsub/admin.h"
#include "state/groups/epochs.h"

namespace lockstep::runner {

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
struct SeekPerformer {
  const state::Schema& schema;
  const state::Epochs& epochs;
  pubsub::Admin& admin;
  const std::string& instance;
  Millis ack_fence;  // a claim that old is not acted upon any more
  Millis takeover;   // a claim that old is free for others
  const SeekHooks& hooks;

  // OK when the epoch's Seek is done and marked; else what stands in the way, UNAVAILABLE if that
  // passes by itself.
  absl::Status Pass(postgres::Connection& connection, const state::GroupEpoch& under) const;
  absl::Status Repair(postgres::Connection& connection, const state::GroupEpoch& under) const;
};

}  // namespace lockstep::runner
