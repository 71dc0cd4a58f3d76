#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "platform/retry_policy.h"
#include "runner/batch/batch.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/dead_letter_budget.h"
#include "runner/options/group_options.h"

namespace lockstep::runner {

// Hears what happened to the messages of a lane; called on the lane's thread.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  // After the commit: now they may be acked.
  virtual void OnCommitted(std::span<Inbound* const> items, const BatchResult& result) = 0;
  // Not applied, to be given back to the bus.
  virtual void OnGivenBack(std::span<Inbound* const> items) = 0;
  // A transaction failed and will be tried again, or in parts. `waits_for`: whose lock on a table
  // made it fail, if one did.
  virtual void OnFailure(const absl::Status& status, std::span<Inbound* const> items,
                         const std::string& waits_for) = 0;
  // A handler does not accept these now, for this reason; it is called again after `pause`.
  virtual void OnOutage(std::span<Inbound* const> items, const std::string& reason,
                        Millis pause) = 0;
};

// Brings a batch to its end, whatever fails: passing faults are tried again in place, one in doubt
// is run again (the inbox knows whether it had committed), faults of the data are narrowed down to
// the message, faults of the configuration halt the group. `stop` gives up: no transaction is begun
// after it; `closing`, which comes before it or with it, gives up what waits for a handler that is
// out. Owned by one lane's thread.
//
// Answers how the work ended: OK = it is done; ABORTED = drop everything that came under this
// epoch; CANCELLED = given up before it was done, and nobody was blamed for it; everything else =
// the group can't go on, for this reason.
class FailurePolicy {
 public:
  FailurePolicy(const Batch& batch, ConnectionSource& connections, state::GroupEpoch under,
                LaneIdentity lane, const GroupOptions& options, DeadLetterBudget& budget,
                BatchObserver& observer, std::stop_token stop, Outside* outside = nullptr,
                std::stop_token closing = {})
      : batch_(batch),
        connections_(connections),
        under_(std::move(under)),
        lane_(std::move(lane)),
        options_(options),
        budget_(budget),
        observer_(observer),
        stop_(std::move(stop)),
        outside_(outside),
        closing_(closing.stop_possible() ? std::move(closing) : stop_) {}

  absl::Status Process(std::span<Inbound* const> items);
  // Applies what waits for these aggregates and is due.
  absl::Status Release(const std::vector<std::string>& keys);

 private:
  // What one transaction takes: messages from the bus, or an aggregate's parked events.
  struct Part {
    std::vector<Inbound*> items{};
    std::string key{};  // of the parked events; then there are no items
    ReleaseLimits limits{};
    bool suspected = false;  // its passing faults are its own: it has stood out before
    int faults_in_a_row = 0;
    int outages_in_a_row = 0;  // of a handler
    SteadyTime not_before{};   // when a handler may be called again
    int faults_against = 0;    // since the database last refused everybody: may be the part's own
    // Of parked events:
    Loaded loaded{};   // by the last try
    EventId alone{};   // the one that failed alone last …
    int attempts = 0;  // … and how often

    bool parked() const { return items.empty(); }
    // Whether what failed was already to be written as dead.
    bool FirstIsMarkedDead() const;
  };

  absl::Status WorkOff();
  absl::Status WorkOffParts();
  absl::StatusOr<BatchResult> Try(postgres::Connection& connection, Part& part);

  // These answer how the work ends; OK = it goes on with parts_.
  absl::Status AfterRollback(Part& part, const BatchResult& result);
  absl::Status AfterOutage(Part& part, const BatchResult& result);
  absl::Status AfterFailure(Part& part, const absl::Status& failed);
  // For so many failed transactions.
  absl::Status Blame(Part& part, const absl::Status& failed, int transactions);
  absl::Status BlameMessage(Part& part, const absl::Status& failed);
  void BlameParked(Part& part, const absl::Status& failed, int transactions);

  // Makes the part smaller; false when it can't be.
  bool Narrow(Part& part);
  bool LeaveParked(Part& part);
  void Split(const Part& part);
  void TakeOff(size_t first);
  void AddReleases(const std::vector<std::string>& keys);

  void GiveBackPoison(Part& part);
  void Committed(const Part& part, const BatchResult& result);
  bool ProbeCommits();
  std::string WhoLocksATable(const absl::Status& failed);

  const Batch& batch_;
  ConnectionSource& connections_;
  state::GroupEpoch under_;
  const LaneIdentity lane_;
  const GroupOptions& options_;
  DeadLetterBudget& budget_;
  BatchObserver& observer_;
  const std::stop_token stop_;
  Outside* const outside_;         // null = nothing is called outside
  const std::stop_token closing_;  // what is in hand is finished, but no handler waited for
  size_t calls_at_once_ = 0;  // messages that handlers accept within a transaction's time; 0 = all
  const Backoff::Random random_ = Backoff::DefaultRandom();
  std::vector<Part> parts_;  // still to do, the next one last
};

}  // namespace lockstep::runner
