#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/retry_policy.h"
#include "postgres/connection.h"
#include "sagas/engine/parts.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {

// Claims what is due, renews what is in hand, and sleeps. NOTIFY is a hint, the poll is the truth:
// to sleep it takes the wake lock and looks once more; a writer that fails to share the lock
// notifies, one that shares it keeps us from taking it until its transaction ends. Of several
// engines one holds the lock, and all hear the notification. Its own thread, with a session of its
// own.
class Dispatcher {
 public:
  explicit Dispatcher(Engine::Parts& parts) : parts_(parts) {}

  void Run();
  // At the end, when no worker is at work any more: others go on at once.
  void GiveBack();

 private:
  absl::Status Turn();
  absl::Status Open();
  absl::Status Renew();
  // Whether it took something.
  absl::StatusOr<bool> Claim();
  absl::Status PlanRest();
  absl::Status Rest();
  absl::Status Disarm();
  SteadyTime NextOfOwn(SteadyTime now, SteadyTime at_most);

  Engine::Parts& parts_;
  std::unique_ptr<postgres::Connection> session_;
  Backoff backoff_{{.max_attempts = 0,
                    .base = Millis(200),
                    .cap = Millis(10'000),
                    .jitter = RetryPolicy::Jitter::kFull}};
  Backoff::Random random_ = Backoff::DefaultRandom();
  bool look_ = true;      // there may be something to claim
  bool planned_ = false;  // the rest after the last look
  bool armed_ = false;    // it has the wake lock
  int writers_ = 0;       // rests in a row for somebody who writes
  SteadyTime next_look_{};
  SteadyTime next_renewal_{};
};

}  // namespace lockstep::sagas
