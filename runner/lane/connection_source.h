#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "platform/retry_policy.h"
#include "postgres/connection.h"

namespace lockstep::runner {

// A connection that is opened again after it broke, with backoff and without end: a database that
// is down is waited for. Owned by one thread.
class ConnectionSource {
 public:
  ConnectionSource(postgres::ConnectionOptions options, std::string owner)
      : options_(std::move(options)), owner_(std::move(owner)) {}

  // ABORTED when `accept` said so, CANCELLED when `stop` was requested meanwhile.
  absl::StatusOr<postgres::Connection*> Get(const std::stop_token& stop);
  // One try, without waiting.
  absl::StatusOr<postgres::Connection*> Try();

  // Looks at every new connection; one that it refuses is not used. ABORTED is not tried again.
  std::function<absl::Status(postgres::Connection&)> accept;

  // Of the newest session, 0 before the first; from any thread, for whoever must cancel it.
  int backend_pid() const { return backend_pid_; }

 private:
  const postgres::ConnectionOptions options_;
  const std::string owner_;  // for the log
  std::unique_ptr<postgres::Connection> connection_;
  Backoff backoff_{{.max_attempts = 0,
                    .base = Millis(100),
                    .cap = Millis(5'000),
                    .jitter = RetryPolicy::Jitter::kProportional,
                    .jitter_amount = 0.3}};
  std::atomic<int> backend_pid_{0};
};

}  // namespace lockstep::runner
