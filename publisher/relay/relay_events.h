#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_row.h"

namespace lockstep::publisher {

// Hears what a relay does: logs and metrics are listeners, not part of it. Called on the relay's
// thread; must be quick.
class RelayEvents {
 public:
  virtual ~RelayEvents() = default;

  virtual void OnClaimed(const std::vector<OutboxRow>&) {}
  virtual void OnPublished(const OutboxRow&, Millis /*dispatch*/) {}
  // The bus had the event already: as good as published.
  virtual void OnDedupHit(const OutboxRow&, Millis /*dispatch*/) {}
  // Sent and not taken, whatever comes of it: one of the next three follows.
  virtual void OnFailed(const OutboxRow&, Millis /*dispatch*/) {}
  virtual void OnRetry(const OutboxRow&, std::string_view /*code*/, Millis /*delay*/,
                       const std::string& /*error*/) {}
  virtual void OnDead(const OutboxRow&, std::string_view /*code*/, const std::string& /*error*/) {}
  // The bus, or the row's topic, is out of reach: nothing is spent, and the topic pauses.
  virtual void OnOutage(const OutboxRow&, std::string_view /*code*/, const absl::Status&,
                        Millis /*pause*/) {}
  // `state`: the row as it is now, as JSON without its event.
  virtual void OnLostLease(const OutboxRow&, const std::string& /*state*/) {}
  virtual void OnDatabaseError(const absl::Status&) {}
  virtual void OnShards(const std::vector<int>& /*held*/, int /*of*/) {}
};

}  // namespace lockstep::publisher
