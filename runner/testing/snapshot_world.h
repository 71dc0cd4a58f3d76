#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "projections/testing/test_group.h"
#include "runner/batch/batch.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {

// An event or a snapshot of one aggregate, as a publisher would send it. Test code.
struct SentMessage {
  std::string event_id;
  std::string tenant;
  std::string id;
  int64_t version = 0;
  std::string type;
  std::string payload;
  bool snapshot = false;
  bool overwrite = false;
  bool absent = false;
};

// A database with declared projections of a replica, and batches over them without a bus. Two
// versioned tables with the key (tenant, id), one deletes hard and one softly; and, where changes
// are merged, a table that counts them (not where events are known by their versions), else one
// that they alone feed. Test code.
class SnapshotWorld {
 public:
  // `merges`: a change is a part, and waits for its predecessor; else every event is whole.
  // `by_versions`: the generation was begun with inbox: aggregate.
  explicit SnapshotWorld(bool merges, BatchRules rules = {}, bool by_versions = false);

  // Runs a batch as a lane does: again after a rollback, and on with what it left.
  std::vector<Fate> Run(const std::vector<SentMessage>& messages, const ReleaseLimits& limits = {});
  absl::Status Resolve(int64_t dead_letter, bool replay);
  absl::Status SkipTo(const std::string& aggregate_key, int64_t version);
  // A reset forward, as far as versions mind.
  void SkipGaps();
  // From now on, what comes is a replay that overwrites; or no longer.
  void Overwrite() { under_.overwrite_until = Clock::System().Now() + std::chrono::hours(1); }
  void StopOverwriting() { under_.overwrite_until.reset(); }
  std::vector<std::string> Rows(const std::string& sql) { return projections::RowsOf(db, sql); }

  testing::TestDatabase db;
  const std::unique_ptr<postgres::Connection> connection;
  int64_t overtaken = 0;  // dead letters, over all batches

 private:
  Inbound Received(const SentMessage& message);
  void ReleaseAll(std::vector<std::string> keys);

  const state::Schema schema_{"lockstep_state"};
  const ConsumerGroup name_{"g"};
  projections::GroupDeclaration group_;
  state::Offsets offsets_{schema_};
  std::unique_ptr<Batch> batch_;
  state::GroupEpoch under_;
  int64_t messages_ = 0;
};

}  // namespace lockstep::runner
