#include "postgres/statement_deadline.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace lockstep::postgres {

// The thread that shuts sockets. It is not told of statements: none that begins while it sleeps
// ends its time before the shortest limit has gone by, so it looks that often.
class DeadlineWatch {
 public:
  // Never ends: sessions of static objects may outlive whatever main has.
  static DeadlineWatch& Get() {
    static auto* const watch = new DeadlineWatch;
    return *watch;
  }

  void Add(StatementDeadline* deadline) {
    {
      const std::scoped_lock lock(mu_);
      deadlines_.insert(deadline);
    }
    added_.notify_all();
  }
  void Remove(StatementDeadline* deadline) {
    const std::scoped_lock lock(mu_);
    deadlines_.erase(deadline);
  }

 private:
  DeadlineWatch() {
    std::thread([this] { Run(); }).detach();
  }

  void Run() {
    std::unique_lock lock(mu_);
    while (true) {
      if (deadlines_.empty()) {
        added_.wait(lock);
      } else {
        added_.wait_until(lock, ShutThoseThatPassed());
      }
    }
  }

  SteadyTime ShutThoseThatPassed() {
    const SteadyTime now = Clock::System().Steady();
    SteadyTime next = SteadyTime::max();
    for (StatementDeadline* const deadline : deadlines_) {
      SteadyTime at = deadline->at_;
      if (at == StatementDeadline::kPassed) continue;
      const bool waits = at != StatementDeadline::kNone;
      if (!waits || at > now) {
        next = std::min(next, waits ? at : now + deadline->limit_);
      } else if (deadline->at_.compare_exchange_strong(at, StatementDeadline::kPassed)) {
        ::shutdown(deadline->socket_, SHUT_RDWR);
      } else {
        next = std::min(next, now + deadline->limit_);  // it was answered just now
      }
    }
    return std::min(next, now + std::chrono::hours(1));
  }

  std::mutex mu_;
  std::condition_variable added_;
  std::set<StatementDeadline*> deadlines_;
};

StatementDeadline::StatementDeadline(int socket, Millis limit)
    : limit_(limit), socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)) {
  DeadlineWatch::Get().Add(this);
}

StatementDeadline::~StatementDeadline() {
  DeadlineWatch::Get().Remove(this);
  ::close(socket_);
}

StatementDeadline::Waiting::Waiting(StatementDeadline* deadline) : deadline_(deadline) {
  if (deadline_ == nullptr || deadline_->passed()) return;
  deadline_->at_ = Clock::System().Steady() + deadline_->limit_;
}

StatementDeadline::Waiting::~Waiting() {
  if (deadline_ == nullptr) return;
  SteadyTime at = deadline_->at_;
  while (at != kPassed && !deadline_->at_.compare_exchange_weak(at, kNone)) {
  }
}

}  // namespace lockstep::postgres
