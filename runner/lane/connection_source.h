#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "platform/retry_policy.h"
#include "postgres/connection.h"

namespace lockstep::runner {

// A connection that is opened again after it broke, with backoff and without end: a database that
// is down is waited for. Owned by one thread.
class ConnectionSource {
 public:
  ConnectionSource(postgres::ConnectionOptions options, std::string owner);

  // Null only when `stop` was requested meanwhile.
  postgres::Connection* Get(const std::stop_token& stop);
  // One try, without waiting.
  absl::StatusOr<postgres::Connection*> Try();

  // Looks at every new connection; one that it refuses is not used, and Get answers null.
  std::function<bool(postgres::Connection&)> accept;
  bool refused() const { return refused_; }

  // Of the newest session, 0 before the first; from any thread, for whoever must cancel it.
  int backend_pid() const { return backend_pid_; }

 private:
  const postgres::ConnectionOptions options_;
  const std::string owner_;  // for the log
  std::unique_ptr<postgres::Connection> connection_;
  Backoff backoff_;
  bool refused_ = false;
  std::atomic<int> backend_pid_{0};
};

}  // namespace lockstep::runner
