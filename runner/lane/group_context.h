#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/metrics.h"
#include "projections/model/projector.h"
#include "pubsub/transport.h"
#include "runner/batch/batch.h"
#include "runner/handlers/http_handlers.h"
#include "runner/lane/dead_letter_budget.h"
#include "runner/options/group_options.h"
#include "runner/seek/restore_witness.h"
#include "runner/seek/seek_performer.h"
#include "runner/status/group_metrics.h"
#include "runner/status/health_options.h"
#include "state/groups/epochs.h"
#include "state/positions/offsets.h"

namespace lockstep::runner {

// Decides which messages may be applied now. The others are held, unacked, until the session ends,
// and given back then. A rebuild uses it to bring its shadow level with the live slot. Called on
// the lanes' threads with the lane's connection.
using Admission = std::function<std::vector<bool>(postgres::Connection& connection,
                                                  std::span<Inbound* const> items)>;

// What all groups of a process share; outlives them.
struct GroupEnvironment {
  std::string database;
  std::string state_schema;
  std::string instance;
  pubsub::Transport& transport;
  MetricsRegistry& metrics;
  Millis drain{8'000};           // for what is in hand, when asked to stop
  Millis poll{1'000};            // how often the epoch is looked at
  Millis retry_halt{10'000};     // how often a halted group looks whether it was cured
  Millis look_for_left{30'000};  // how often it looks for parked events that a gone runner left due
  HealthOptions health{};
  bool existing_only = false;  // a group is never made by its start: somebody else made it
  Admission admission{};       // none = everything is applied as it comes
  state::OffsetProvider* offsets = nullptr;  // null = in the state schema
  SeekHooks seek_hooks{};                    // for tests
  std::string address;  // of the status page, as others reach it; empty = there is none
  WallTime started_at = Clock::System().Now();
};

// One consumer group's own: made once by its Group, used by reference in its start, its sessions
// and their lanes, all of which it outlives.
struct GroupContext {
  GroupContext(GroupOptions options, std::unique_ptr<projections::Projector> projector,
               const GroupEnvironment& environment);

  postgres::ConnectionOptions connection() const;
  // Compares what was committed with the offsets in the state schema; null when they are elsewhere.
  RestoreWitness* offset_witness() { return own_offsets ? &witness : nullptr; }

  const GroupEnvironment& environment;
  GroupOptions options;  // the numbers that Reconfigure brings change between two sessions
  const std::unique_ptr<projections::Projector> projector;
  const state::Schema schema;
  const state::Epochs epochs;
  const std::unique_ptr<state::OffsetProvider> own_offsets;  // unless others were brought
  const Batch batch;
  HttpHandlers handlers;
  GroupMetrics metrics;
  DeadLetterBudget budget;
  RestoreWitness witness;
};

}  // namespace lockstep::runner
