#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/batch/batch.h"
#include "runner/testing/test_group.h"
#include "state/positions/offsets.h"

namespace lockstep::runner {

// The batches of a GroupWorld's group without a group, on a connection of their own.
struct DirectBatch {
  explicit DirectBatch(GroupWorld& world)
      : connection(world.database.Connect()), under(*epochs.Load(*connection)) {}

  absl::StatusOr<BatchResult> Release(const std::vector<std::string>& keys,
                                      const ReleaseLimits& limits = {},
                                      Loaded* loaded = nullptr) const {
    return batch.Release(*connection, under, keys, limits, loaded);
  }

  const state::Schema schema{"feed_state"};
  const ConsumerGroup name{"feed"};
  const TestProjector projector;
  state::Offsets offsets{schema};
  const state::Epochs epochs{schema, name};
  const Batch batch{schema, name, projector, offsets, {}};
  const std::unique_ptr<postgres::Connection> connection;
  const state::GroupEpoch under;
};

}  // namespace lockstep::runner
