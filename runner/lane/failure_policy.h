#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "platform/retry_policy.h"
#include "runner/batch/batch.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/dead_letter_budget.h"

namespace lockstep::runner {

struct FailureOptions {
  int max_attempts = 5;     // failed transactions before a message is dead
  int transient_tries = 5;  // of one batch, before it is suspected itself
  bool to_pubsub = false;   // poison goes back to the bus, for the subscription's own policy
  RetryPolicy retry{.max_attempts = 0,
                    .base = Millis(50),
                    .cap = Millis(5'000),
                    .jitter = RetryPolicy::Jitter::kFull};
};

// Hears what happened to the messages of a lane; called on the lane's thread.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  // After the commit: now they may be acked.
  virtual void OnCommitted(std::span<Inbound* const> items, const BatchResult& result) = 0;
  // Not applied, to be given back to the bus.
  virtual void OnGivenBack(std::span<Inbound* const> items) = 0;
  // A transaction failed and will be tried again, or in parts.
  virtual void OnFailure(const absl::Status& status, std::span<Inbound* const> items) = 0;
};

enum class Verdict {
  kDone,
  kStaleEpoch,  // drop everything that came under this epoch
  kHalted,      // the group can't go on; halt_reason() says why
  kStopped,     // given up before it was done; nobody was blamed for it
};

// Brings a batch to its end, whatever fails: transient faults are tried again in place,
// one in doubt is run again (the inbox settles it), faults of the data are isolated down to the
// message, faults of the configuration halt the group. `stop` gives up: no transaction is begun
// after it. Owned by one lane's thread.
class FailurePolicy {
 public:
  FailurePolicy(const Batch& batch, ConnectionSource& connections, state::GroupEpoch under,
                LaneIdentity lane, FailureOptions options, DeadLetterBudget& budget,
                BatchObserver& observer, std::stop_token stop);

  Verdict Process(std::span<Inbound* const> items);
  // Applies what waits for these aggregates and is due.
  Verdict Release(const std::vector<std::string>& keys);

  const std::string& halt_reason() const { return halt_reason_; }

 private:
  enum class Step { kAgain, kBlame, kEnd };
  // Faults of one batch that should have passed.
  struct Faults {
    int in_a_row = 0;
    int against = 0;  // since the database last refused everybody: these may be the batch's own
  };

  // `suspected`: a part of a batch whose transient faults are its own.
  Verdict Process(std::span<Inbound* const> items, bool suspected, ReleaseLimits limits);
  // What was rolled back although nothing failed.
  Verdict RunAgain(std::span<Inbound* const> items, bool suspected, const ReleaseLimits& limits,
                   const BatchResult& result);
  Verdict Split(std::span<Inbound* const> items, bool suspected);
  Verdict ReleaseOne(const std::string& key);
  // Fewer, when several were loaded.
  static bool ReleaseLess(const Loaded& loaded, ReleaseLimits& limits);
  static bool Condemns(const ReleaseLimits& limits, const EventId& event);
  // What a failed transaction asks for; at kEnd `verdict` says how it ends.
  Step Judge(const absl::Status& failed, Faults& faults, bool suspected, Verdict& verdict);
  // How many failed transactions the blame stands for; the next ones count anew.
  static int Blamed(const absl::Status& failed, Faults& faults);
  bool ProbeCommits();
  std::vector<Inbound*> WithoutPoison(std::span<Inbound* const> items);
  Verdict Halt(std::string reason);
  Verdict HaltOverBudget();
  void Committed(std::span<Inbound* const> items, const BatchResult& result);

  const Batch& batch_;
  ConnectionSource& connections_;
  state::GroupEpoch under_;
  const LaneIdentity lane_;
  const FailureOptions options_;
  DeadLetterBudget& budget_;
  BatchObserver& observer_;
  const std::stop_token stop_;
  const Backoff::Random random_ = Backoff::DefaultRandom();
  std::string halt_reason_;
};

}  // namespace lockstep::runner
