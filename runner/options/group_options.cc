#include "runner/options/group_options.h"

#include "offsets/seek_target.h"
#include "platform/config/config.h"
#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::runner {

void Bind(ConfigSection& config, GroupOptions& options) {
  ConfigSection followed = config.Followed();
  config.Key("name", &options.name, "the consumer group; as its file says");
  config.Key("subscription", &options.subscription, "short or full name; as its file says");
  config.Key("snapshots", &options.snapshots,
             "a second subscription, of a backfill's own topic; no offset, no Seek");
  config.Key("lanes", &options.lanes, "transactions at a time, each with a connection");
  followed.Key("max_batch", &options.max_batch, "messages per transaction");
  followed.Bytes("max_batch_bytes", &options.max_batch_bytes, "bytes per transaction, about");
  followed.Key("max_outstanding_messages", &options.max_outstanding_messages,
               "messages in hand at a time");
  followed.Bytes("max_outstanding_bytes", &options.max_outstanding_bytes,
                 "bytes in hand at a time");
  config.Key("streams", &options.streams, "StreamingPull streams");
  config.Key("ack_deadline", &options.ack_deadline, "of the stream; leases are extended");
  config.Key("max_extension", &options.max_extension, "how long a lease is extended at most");
  followed.Key("linger", &options.linger,
               "how long a batch waits for more; 0 = only for small batches, 20ms at most");
  followed.Key("max_attempts", &options.max_attempts,
               "failed transactions before a message is a dead letter");
  followed.Key("transient_tries", &options.transient_tries,
               "tries of a batch on passing faults before it is suspected itself");
  config.Choice("on_poison", &options.on_poison,
                {{"park", OnPoison::kPark}, {"skip", OnPoison::kSkip}},
                "later events of an aggregate wait for its dead letter, or not");
  config.Choice(
      "on_gap", &options.on_gap,
      {{"declared", OnGap::kDeclared}, {"park", OnGap::kPark}, {"apply", OnGap::kApply}},
      "what an event does whose predecessor is missing; declared = park for merge, apply for "
      "replace, or as the projections say");
  config.Key("follow_versions", &options.follow_versions,
             "keep every aggregate's version, so that readers can await one; events that park on a "
             "gap need it in any case");
  config.Choice("inbox", &options.inbox,
                {{"event", InboxMode::kEvent}, {"aggregate", InboxMode::kAggregate}},
                "by what an event is known again: a row per event, or its aggregate's version "
                "(wants on_gap: park); counts from the next reset that empties, or rebuild");
  config.Choice("baseline", &options.baseline,
                {{"first_seen", Baseline::kFirstSeen}, {"snapshot", Baseline::kSnapshot}},
                "where an aggregate begins of which nothing is known: with the first version seen, "
                "or with version 1 or a snapshot, until which merges wait");
  config.Choice("dead_letter", &options.dead_letter,
                {{"postgres", DeadLetterTo::kPostgres}, {"pubsub", DeadLetterTo::kPubsub}},
                "where poison goes; pubsub nacks it, for unordered subscriptions only");
  config.Key("dead_letter_budget", &options.dead_letter_budget,
             "dead letters within the window; more halts the group; 0 = no limit");
  config.Key("dead_letter_window", &options.dead_letter_window, "see dead_letter_budget");
  followed.Key("inbox_retention", &options.inbox_retention, "how long an event is remembered");
  followed.Key("force_inbox_retention", &options.force_inbox_retention,
               "accept a retention shorter than what the subscription can replay");
  config.Key("statement_timeout", &options.statement_timeout, "of the lanes' statements");
  config.Key("checkpoints", &options.checkpoints,
             "take Pub/Sub snapshots that heal a database restored from a backup");
  config.Key("checkpoint_every", &options.checkpoint_every, "how often");
  config.Key("checkpoint_keep", &options.checkpoint_keep,
             "how long; a backup older than its checkpoints is refused");
  config.Key(
      "ack_fence", &options.ack_fence,
      "an ack not sent so long after its commit is dropped; a reset's Seek waits twice that");
  config.Key("seek_takeover", &options.seek_takeover,
             "a reset's Seek that an instance claimed so long ago is performed by another");
  config.Section("verify", [&](ConfigSection& section) { Bind(section, options.verify); });
  config.Key("start_from", &options.start_from,
             "on the first start: committed | earliest | latest | a time (RFC 3339) | checkpoint | "
             "snapshot:NAME");
}

absl::Status GroupOptions::Validate() const {
  const auto wrong = [&](std::string_view key, std::string_view what) {
    return InvalidArgument("group '{}': {} {}", name, key, what);
  };
  if (name.empty()) return InvalidArgument("a group needs a name: set it in its file");
  if (subscription.empty()) return wrong("subscription", "is not set, here or in its file");
  if (snapshots == subscription) return wrong("snapshots", "is the group's subscription itself");
  if (lanes < 1 || lanes > 256) return wrong("lanes", "must be 1 to 256");
  if (max_batch < 1) return wrong("max_batch", "must be 1 at least");
  if (max_batch_bytes < 1) return wrong("max_batch_bytes", "must be 1 at least");
  if (max_outstanding_messages < 1) return wrong("max_outstanding_messages", "must be 1 at least");
  if (max_outstanding_bytes < 1) return wrong("max_outstanding_bytes", "must be 1 at least");
  if (streams < 1) return wrong("streams", "must be 1 at least");
  if (max_attempts < 1) return wrong("max_attempts", "must be 1 at least");
  if (transient_tries < 1) return wrong("transient_tries", "must be 1 at least");
  if (ack_deadline < Millis(10'000) || ack_deadline > Millis(600'000)) {
    return wrong("ack_deadline", "must be 10s to 10m");
  }
  if (ack_fence < Millis(100)) return wrong("ack_fence", "must be 100ms at least");
  if (seek_takeover < Millis(1'000)) return wrong("seek_takeover", "must be 1s at least");
  RETURN_IF_ERROR(verify.Validate(name));
  const absl::Status understood = ParseStartFrom().status();
  return understood.ok() ? understood
                         : InvalidArgument("group '{}': {}", name, MessageOf(understood));
}

absl::StatusOr<state::SeekTarget> GroupOptions::ParseStartFrom() const {
  const auto target = offsets::ParseSeekTarget(start_from, pubsub::ProjectOf(subscription));
  if (target) return *target;
  return InvalidArgument(
      "start_from is '{}', not committed, earliest, latest, a time such as "
      "2026-01-31T12:00:00Z, checkpoint, or snapshot:NAME",
      start_from);
}

}  // namespace lockstep::runner
