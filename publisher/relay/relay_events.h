#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_row.h"

namespace lockstep::publisher {

// What happened to a row.
struct RowEvent {
  enum class Kind {
    kPublished,
    kKnown,      // the bus had the event already: as good as published
    kDedupHit,   // its content was sent by another row: published without being sent
    kFailed,     // sent and not taken, whatever comes of it: one of the next four follows
    kRetry,      // an attempt is spent
    kUnblamed,   // it failed, maybe as everything does: tried again, nothing is spent
    kDead,       // the last one was
    kOutage,     // the bus, or the row's topic, is out of reach: nothing is spent, the topic pauses
    kLostLease,  // the row is another's
  };

  Kind kind;
  const OutboxRow& row;
  Millis took{0};                    // from sending to the answer
  Millis wait{0};                    // until a retry, or the end of the topic's pause
  std::string_view code = {};        // docs/errors.md
  std::string_view error = {};       // in words
  std::string_view message_id = {};  // of one that was published; empty where the bus has none
  std::string_view state = {};  // of a lost lease: the row as it is now, as JSON without its event
};

// Hears what a relay does: logs and metrics are listeners, not part of it. Called on the relay's
// thread; must be quick.
class RelayEvents {
 public:
  virtual ~RelayEvents() = default;

  virtual void OnClaimed(const std::vector<OutboxRow>&) {}
  virtual void OnRow(const RowEvent&) {}
  virtual void OnDatabaseError(const absl::Status&) {}
  // So many rows that were published are no longer in the outbox.
  virtual void OnGone(int64_t /*rows*/) {}
  virtual void OnShards(const std::vector<int>& /*held*/, int /*of*/) {}
};

}  // namespace lockstep::publisher
