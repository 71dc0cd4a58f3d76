#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "offsets/state_schema.h"
#include "platform/clock.h"
#include "platform/service.h"
#include "platform/strong_id.h"
#include "platform/ticker.h"

namespace lockstep::runner {

// Forgets events past their retention, in small transactions, so that it never holds up a lane.
// Tombstones of hard deletes go with them: they live as long as inbox rows. Its own thread, with a
// connection only while it works.
class InboxCleaner : public Service {
 public:
  struct Options {
    std::string database;
    std::string state_schema;
    Millis interval{60'000};
    int batch = 5'000;  // rows per transaction
  };
  struct Retention {
    ConsumerGroup group;
    Millis retention;
  };

  InboxCleaner(Options options, std::vector<Retention> groups);
  ~InboxCleaner() override;

  absl::Status Start() override;
  void Stop() override;

  // One pass over everything that is due; answers how many inbox rows went.
  absl::StatusOr<int64_t> CleanOnce();

 private:
  void Round();
  absl::StatusOr<int64_t> CleanRetired(postgres::Connection& connection, const std::string& group);
  absl::StatusOr<int64_t> Repeat(postgres::Connection& connection,
                                 const postgres::Statement& statement, const Retention& group);

  const Options options_;
  const std::vector<Retention> groups_;
  const offsets::StateStatement inbox_;
  const offsets::StateStatement tombstones_;
  std::stop_source stop_;  // ends a round between two transactions
  Ticker ticker_;          // last: its thread uses the rest
};

}  // namespace lockstep::runner
