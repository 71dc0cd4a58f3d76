#pragma once

#include <atomic>

#include "platform/clock.h"

namespace lockstep::postgres {

// How long one session waits for an answer. libpq waits for ever, statement_timeout is the
// server's own, and TCP's timeouts do not strike while the server's kernel takes what is sent: a
// server that hangs would hang us. When the time is over a thread of the process shuts the
// session's socket, so that the call which waits on it fails as if the server were gone.
class StatementDeadline {
 public:
  // `socket` is the session's, open now.
  StatementDeadline(int socket, Millis limit);
  ~StatementDeadline();
  StatementDeadline(const StatementDeadline&) = delete;
  StatementDeadline& operator=(const StatementDeadline&) = delete;

  // While it lives, an answer is waited for; null = without a limit. On the session's thread.
  class Waiting {
   public:
    explicit Waiting(StatementDeadline* deadline);
    ~Waiting();

   private:
    StatementDeadline* const deadline_;
  };

  bool can_shut() const { return socket_ >= 0; }  // not when the process has no descriptor left
  // The session was given up.
  bool passed() const { return at_.load() == kPassed; }
  Millis limit() const { return limit_; }

 private:
  friend class DeadlineWatch;
  static constexpr SteadyTime kNone{};
  static constexpr SteadyTime kPassed{SteadyTime::duration(1)};

  const Millis limit_;
  const int socket_;  // our own, for libpq closes its one while we may be about to shut it
  std::atomic<SteadyTime> at_{kNone};
};

}  // namespace lockstep::postgres
