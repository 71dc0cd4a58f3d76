#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "projections/model/projector.h"
#include "runner/batch/key_plan.h"
#include "runner/options/group_options.h"
#include "state/events/key_states.h"
#include "state/events/parking.h"

namespace lockstep::operations {

// Whether events would wait for a predecessor if they came now, one after the other, by the
// runner's own rule (runner/batch/key_plan). For `projection explain`: it reads and never writes,
// and takes no lock. What an earlier event of this object would have settled counts. One thread, as
// its connection.
class GapPreview {
 public:
  // REQUIRES: what is given outlives it, and the group has started once.
  static absl::StatusOr<GapPreview> Open(const projections::Projector& projector,
                                         const runner::BatchRules& rules,
                                         const state::Schema& schema, const ConsumerGroup& group,
                                         postgres::Connection& connection);

  // Why the event would be parked, as half a sentence; nothing = it would not.
  absl::StatusOr<std::optional<std::string>> WhyItWaits(const envelope::Event& event);

 private:
  GapPreview(const projections::Projector& projector, const runner::BatchRules& rules,
             const state::Schema& schema, int generation, postgres::Connection& connection)
      : projector_(&projector),
        rules_(rules),
        key_rules_(rules.ForKeys(projector.MayPark())),
        keys_(schema),
        parking_(schema),
        generation_(generation),
        connection_(&connection) {}

  const projections::Projector* projector_;
  runner::BatchRules rules_;
  runner::KeyRules key_rules_;
  // How an aggregate would stand, with the events that would wait, in version order.
  struct Key {
    state::KeyRow row;
    std::vector<runner::PlanItem> waiting;
  };
  absl::StatusOr<Key> Load(const std::string& key) const;

  state::KeyStates keys_;
  state::Parking parking_;
  int generation_;
  postgres::Connection* connection_;
  std::map<std::string, Key> aggregates_;
};

}  // namespace lockstep::operations
