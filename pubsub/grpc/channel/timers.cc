#include "pubsub/grpc/channel/timers.h"

namespace lockstep::pubsub::grpc_client {

Timers::Timers() : thread_([this] { Loop(); }) {}

Timers::~Timers() {
  {
    std::scoped_lock lock(mu_);
    stopping_ = true;
    due_.clear();
    times_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

Timers::Id Timers::After(Millis delay, std::function<void()> run) {
  const SteadyTime time = std::chrono::steady_clock::now() + delay;
  std::unique_lock lock(mu_);
  const Id id = next_++;
  const auto [place, inserted] = due_.emplace(std::pair(time, id), std::move(run));
  times_.emplace(id, time);
  const bool first = place == due_.begin();
  lock.unlock();
  if (first) changed_.notify_all();
  return id;
}

void Timers::Cancel(Id id) {
  if (id == 0) return;
  std::function<void()> dropped;  // destroyed after the lock
  std::unique_lock lock(mu_);
  const auto time = times_.find(id);
  if (time != times_.end()) {
    const auto place = due_.find({time->second, id});
    dropped = std::move(place->second);
    due_.erase(place);
    times_.erase(time);
    return;
  }
  if (std::this_thread::get_id() == thread_.get_id()) return;
  changed_.wait(lock, [&] { return running_ != id; });
}

void Timers::Loop() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    const auto [time, id] = first->first;
    if (std::chrono::steady_clock::now() < time) {
      changed_.wait_until(lock, time);
      continue;
    }
    std::function<void()> run = std::move(first->second);
    due_.erase(first);
    times_.erase(id);
    running_ = id;
    lock.unlock();
    run();
    run = nullptr;
    lock.lock();
    running_ = 0;
    changed_.notify_all();
  }
}

}  // namespace lockstep::pubsub::grpc_client
