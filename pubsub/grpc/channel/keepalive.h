#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "platform/clock.h"
#include "pubsub/grpc/channel/timers.h"

namespace lockstep::pubsub::grpc_client {

// Watches one stream after the other for a server that has fallen silent: pings it so often, and
// hangs up when a ping is not answered within half of that. Only a server that has answered one
// ping of this stream is held to the next: emulators and older servers know no pings. Works on the
// timers' thread; safe from any thread. End, or the destructor, ends it.
class Keepalive {
 public:
  // `every` 0 = it does nothing.
  Keepalive(Millis every, Timers& timers, std::function<void()> ping, std::function<void()> hang_up)
      : every_(every), ping_(std::move(ping)), hang_up_(std::move(hang_up)), timer_(timers) {}
  ~Keepalive() { End(); }

  void Begin() {
    if (every_ <= Millis(0)) return;
    std::scoped_lock lock(mu_);
    watching_ = true;
    paused_ = awaiting_ = answers_ = false;
    timer_.Set(every_, [this] { OnPingTime(); });
  }

  void OnResponse(bool with_messages) {
    std::scoped_lock lock(mu_);
    // One with messages shows that it lives, not that it knows pings.
    if (awaiting_ && !with_messages) answers_ = true;
    awaiting_ = false;
  }

  // While the stream is not read, silence means nothing.
  void Pause() {
    std::scoped_lock lock(mu_);
    paused_ = true;
  }

  void Resume() {
    std::scoped_lock lock(mu_);
    paused_ = false;
    awaiting_ = false;  // its answer may have waited with the rest
  }

  void End() {
    {
      std::scoped_lock lock(mu_);
      watching_ = false;
    }
    timer_.Cancel();
  }

 private:
  void OnPingTime() {
    {
      std::scoped_lock lock(mu_);
      if (!watching_) return;
      timer_.Set(every_ / 2, [this] { OnJudgement(); });
      if (paused_) return;
      awaiting_ = true;
    }
    ping_();
  }

  void OnJudgement() {
    {
      std::scoped_lock lock(mu_);
      if (!watching_) return;
      const bool silent = awaiting_ && answers_ && !paused_;
      if (!silent) return timer_.Set(every_ - every_ / 2, [this] { OnPingTime(); });
      watching_ = false;
    }
    hang_up_();
  }

  const Millis every_;
  const std::function<void()> ping_;
  const std::function<void()> hang_up_;

  std::mutex mu_;
  Timer timer_;
  bool watching_ = false;
  bool paused_ = false;
  bool awaiting_ = false;  // an answer
  bool answers_ = false;   // it has answered a ping
};

}  // namespace lockstep::pubsub::grpc_client
