#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/metrics.h"
#include "platform/retry_policy.h"
#include "postgres/connection.h"
#include "publisher/backfill/backfill_store.h"
#include "pubsub/publisher.h"

namespace lockstep::publisher {

// Of an outbox.
prometheus::Counter& BackfillRows(MetricsRegistry& metrics, const std::string& table);

// Works on the backfills of a publisher's outboxes: leases one, sends its rows for a turn, and goes
// on with the one that has waited longest. Any number of publishers may do so: a lease is one's,
// and where it is lost the next holder goes on from the cursor. What is sent twice then has the
// same event ids. A thread of its own, with a publisher that the relay does not use; Stop does not
// wait for answers.
class BackfillWorker final : public Service {
 public:
  struct Options {
    std::string database;
    std::string replica;  // where pages are read; empty = `database`
    std::string instance;
    std::vector<std::string> outboxes;
    Millis look{5'000};    // how often it looks for something to do
    Millis lease{60'000};  // taken over so long after the last sign of life
    Millis turn{10'000};   // then others have theirs
    RetryPolicy retry{.max_attempts = 0, .base = Millis(1'000), .cap = Millis(60'000)};
  };
  // The full name of a logical topic; empty = it goes nowhere.
  using Topics = std::function<std::string(const std::string&)>;

  // `publisher` and `metrics` outlive it.
  BackfillWorker(Options options, pubsub::Publisher& publisher, Topics topics,
                 MetricsRegistry& metrics);
  ~BackfillWorker() override { Stop(); }

  absl::Status Start() override {
    return thread_.Start([this] { Work(); });
  }
  void Stop() override { thread_.Stop(); }

  // One turn at one backfill, now, on the caller's thread; false = there is none. An error is the
  // database's that keeps them. REQUIRES: not started.
  absl::StatusOr<bool> Turn();

 private:
  void Work();
  absl::Status Run(BackfillStore& store, const BackfillRecord& record);
  // What becomes of a backfill whose turn ended with a fault.
  absl::Status Note(BackfillStore& store, const BackfillRecord& record, const absl::Status& fault);

  const Options options_;
  pubsub::Publisher& publisher_;
  const Topics topics_;
  MetricsRegistry& metrics_;
  const std::string token_;
  std::unique_ptr<postgres::Connection> session_;
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::publisher
