#pragma once

#include <string>

#include "absl/status/status.h"
#include "offsets/fence.h"
#include "platform/clock.h"
#include "runner/batch/batch.h"
#include "runner/options/verify_schedule.h"
#include "state/positions/seek_target.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::runner {

enum class DeadLetterTo {
  kPostgres,  // in the batch's own transaction
  kPubsub,    // nacked, left to the subscription's policy: outside G1 and G4, unordered only
};

// What a running group takes over when its configuration is read again.
struct FollowedOptions {
  int max_batch = 500;  // messages per transaction
  int64_t max_batch_bytes = 8 << 20;
  int max_outstanding_messages = 1024;  // in hand at a time, over all lanes
  int64_t max_outstanding_bytes = 64 << 20;
  Millis linger{0};         // how long a batch waits for more; at 0 only with full hands (ADR 10)
  int max_attempts = 5;     // failed transactions before a message is dead
  int transient_tries = 5;  // of a batch on passing faults, before it is suspected itself
  Millis inbox_retention{31LL * 24 * 3600 * 1000};
  bool force_inbox_retention = false;  // although the subscription can replay more
};

// One consumer group: one subscription and the projections that it feeds.
struct GroupOptions : FollowedOptions {
  std::string name;          // empty = as its file says
  std::string file;          // the YAML file of its projections
  std::string subscription;  // empty = as its file says
  std::string snapshots;     // a second subscription, of a backfill's own topic; empty = none

  int lanes = 4;  // transactions at a time, each with its own connection
  int streams = 1;
  Millis ack_deadline{60'000};
  Millis max_extension{60 * 60'000};

  OnPoison on_poison = OnPoison::kPark;
  OnGap on_gap = OnGap::kDeclared;
  bool follow_versions = false;  // also where nothing parks on a gap, for those who await one
  InboxMode inbox = InboxMode::kEvent;  // of the generations that begin with it
  Baseline baseline = Baseline::kFirstSeen;
  bool shadow = false;  // a rebuild fills its tables; no key of the configuration
  DeadLetterTo dead_letter = DeadLetterTo::kPostgres;
  int dead_letter_budget = 100;  // within the window; more halts the group; 0 = no limit
  Millis dead_letter_window{60'000};

  Millis statement_timeout{30'000};
  bool checkpoints = false;  // Pub/Sub snapshots that heal a restored database
  Millis checkpoint_every{10 * 60'000};
  Millis checkpoint_keep{7LL * 24 * 3600 * 1000};
  Millis ack_fence = offsets::kAckFence;          // acks are dropped so long after their commit
  Millis seek_takeover = offsets::kSeekTakeover;  // a Seek claimed so long ago is taken over
  VerifySchedule verify;
  std::string start_from = "committed";  // on the group's first start; then its offset counts

  BatchRules batch_rules() const {
    return {.on_poison = on_poison,
            .on_gap = on_gap,
            .follow_versions = follow_versions,
            .baseline = baseline,
            .shadow = shadow};
  }
  absl::Status Validate() const;
  absl::StatusOr<state::SeekTarget> ParseStartFrom() const;
};

// Everything but `file`, which its owner binds first.
void Bind(ConfigSection& config, GroupOptions& options);

}  // namespace lockstep::runner
