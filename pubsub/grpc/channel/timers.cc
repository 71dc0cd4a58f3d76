#include "pubsub/grpc/channel/timers.h"

namespace lockstep::pubsub::grpc_client {

Timers::Timers() : thread_([this] { Loop(); }) {}

Timers::~Timers() {
  {
    std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Timers::Add(Millis delay, Timer* timer, std::function<void()> run) {
  const SteadyTime time = std::chrono::steady_clock::now() + delay;
  Entry replaced;  // destroyed after the lock
  std::scoped_lock lock(mu_);
  const Place place{time, ++last_};
  if (timer != nullptr) {
    replaced = TakeOut(*timer);
    timer->place_ = place;
  }
  const auto added = due_.emplace(place, Entry{timer, std::move(run)}).first;
  if (added == due_.begin()) changed_.notify_all();
}

Timers::Entry Timers::TakeOut(Timer& timer) {
  auto node = due_.extract(std::exchange(timer.place_, {}));
  return node.empty() ? Entry{} : std::move(node.mapped());
}

void Timers::Cancel(Timer& timer) {
  Entry dropped, set_meanwhile;  // destroyed after the lock
  std::unique_lock lock(mu_);
  dropped = TakeOut(timer);
  if (std::this_thread::get_id() == thread_.get_id()) return;
  changed_.wait(lock, [&] { return running_ != &timer; });
  set_meanwhile = TakeOut(timer);  // by the function that ran
}

void Timers::Loop() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const SteadyTime time = due_.begin()->first.first;
    if (std::chrono::steady_clock::now() < time) {
      changed_.wait_until(lock, time);
      continue;
    }
    Entry entry = std::move(due_.extract(due_.begin()).mapped());
    running_ = entry.timer;
    lock.unlock();
    entry.run();
    entry.run = nullptr;
    lock.lock();
    running_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace lockstep::pubsub::grpc_client
