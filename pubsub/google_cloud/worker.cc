#include "pubsub/google_cloud/worker.h"

#include <future>
#include <utility>

namespace lockstep::pubsub::google_cloud {

Worker::Worker(int library_threads) : thread_([this] { Loop(); }) {
  for (int i = 0; i < library_threads; ++i) {
    library_.emplace_back([cq = cq_]() mutable { cq.Run(); });
  }
}

Worker::~Worker() { Stop(); }

bool Worker::Post(std::function<void()> job) {
  {
    std::scoped_lock lock(mu_);
    if (stopped_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Worker::Run(const std::function<void()>& job) {
  std::promise<void> done;
  const bool posted = Post([&] {
    job();
    done.set_value();
  });
  if (posted) done.get_future().wait();
}

void Worker::Loop() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::deque<std::function<void()>> jobs = std::exchange(jobs_, {});
    lock.unlock();
    for (auto& job : jobs) {
      job();
      job = nullptr;
    }
    lock.lock();
  }
}

void Worker::Stop() {
  if (library_.empty() && !thread_.joinable()) return;
  cq_.Shutdown();
  cq_.CancelAll();
  for (std::thread& thread : library_) thread.join();
  library_.clear();
  {
    std::scoped_lock lock(mu_);
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::pubsub::google_cloud
