#include "pubsub/grpc/channel/keepalive.h"

#include <utility>

namespace lockstep::pubsub::grpc_client {

Keepalive::Keepalive(Millis every, Timers& timers) : every_(every), timers_(timers) {}

Keepalive::~Keepalive() { End(); }

void Keepalive::Begin(std::function<void()> ping, std::function<void()> hang_up) {
  if (every_ <= Millis(0)) return;
  std::scoped_lock lock(mu_);
  ping_ = std::move(ping);
  hang_up_ = std::move(hang_up);
  watching_ = true;
  paused_ = awaiting_ = answers_ = false;
  timer_ = timers_.After(every_, [this] { OnPingTime(); });
}

void Keepalive::OnResponse(bool with_messages) {
  std::scoped_lock lock(mu_);
  // One with messages shows that it lives, not that it knows pings.
  if (awaiting_ && !with_messages) answers_ = true;
  awaiting_ = false;
}

void Keepalive::Pause() {
  std::scoped_lock lock(mu_);
  paused_ = true;
}

void Keepalive::Resume() {
  std::scoped_lock lock(mu_);
  paused_ = false;
  awaiting_ = false;  // its answer may have waited with the rest
}

void Keepalive::OnPingTime() {
  std::function<void()> ping;
  {
    std::scoped_lock lock(mu_);
    if (!watching_) return;
    if (!paused_) {
      ping = ping_;
      awaiting_ = true;
    }
    fired_ = std::exchange(timer_, timers_.After(every_ / 2, [this] { OnJudgement(); }));
  }
  if (ping) ping();
}

void Keepalive::OnJudgement() {
  std::function<void()> hang_up;
  {
    std::scoped_lock lock(mu_);
    if (!watching_) return;
    if (awaiting_ && answers_ && !paused_) {
      hang_up = hang_up_;
      watching_ = false;
    } else {
      timer_ = timers_.After(every_ - every_ / 2, [this] { OnPingTime(); });
    }
  }
  if (hang_up) hang_up();
}

void Keepalive::End() {
  Timers::Id timer = 0;
  Timers::Id fired = 0;
  {
    std::scoped_lock lock(mu_);
    watching_ = false;
    timer = timer_;
    fired = fired_;
  }
  timers_.Cancel(timer);
  timers_.Cancel(fired);
}

}  // namespace lockstep::pubsub::grpc_client
