#pragma once

#include <functional>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/strong_id.h"
#include "state/events/retention.h"

namespace lockstep::runner {

// How long a group's events are remembered.
struct InboxRetention {
  ConsumerGroup group;
  Millis retention;
  bool operator==(const InboxRetention&) const = default;
};

// Forgets events past their retention, in small transactions, so that it never holds up a lane.
// Tombstones of hard deletes go a day after them (state/events/retention.h). So go dead letters
// that were resolved long ago, and old audits. It cleans every so often, and at once when it hears
// of another retention. Its own thread, with a connection only while it works.
class InboxCleaner : public Service {
 public:
  struct Options {
    std::string database;
    std::string state_schema;
    Millis dead_letters{0};  // how long those that are resolved are kept; 0 = for ever
    Millis audit{0};         // how long what was audited is; 0 = for ever
    Millis interval{60'000};
    int batch = 5'000;  // rows per transaction
  };
  using Groups = std::function<std::vector<InboxRetention>()>;

  // `groups`: those to clean, now. Called on the cleaner's thread.
  InboxCleaner(Options options, Groups groups);

  absl::Status Start() override { return ticker_.Start(); }
  void Stop() override { ticker_.Stop(); }  // between two transactions

  // One pass over everything that is due; answers how many inbox rows went.
  absl::StatusOr<int64_t> CleanOnce(const std::vector<InboxRetention>& groups);

 private:
  void Round();
  // Until fewer than a batch went, or the cleaner stops.
  absl::StatusOr<int64_t> Repeat(const std::function<absl::StatusOr<int64_t>()>& forget);

  const Options options_;
  const Groups groups_;
  const state::Schema schema_;
  std::vector<InboxRetention> cleaned_;  // of the last round
  SteadyTime next_round_;
  Ticker ticker_;  // last: its thread uses the rest
};

}  // namespace lockstep::runner
