#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "google/cloud/completion_queue.h"

namespace lockstep::pubsub::google_cloud {

// The threads of a publisher or a receiver: some on which google-cloud-cpp works, and one for our
// code around it, to which the library's callbacks only post.
class Worker {
 public:
  // With fewer than four threads the library starts one callback per millisecond.
  explicit Worker(int library_threads) : thread_([this] { Loop(); }) {
    for (int i = 0; i < library_threads; ++i) {
      library_.emplace_back([cq = cq_]() mutable { cq.Run(); });
    }
  }
  ~Worker() { Stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  google::cloud::CompletionQueue cq() const { return cq_; }

  // Runs `job` on our thread, in the order of the calls. False after Stop: it will not run.
  bool Post(std::function<void()> job) {
    {
      std::scoped_lock lock(mu_);
      if (stopped_) return false;
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return true;
  }

  // The same, and waits for it. Not from the thread itself.
  void Run(const std::function<void()>& job) {
    std::promise<void> done;
    const bool posted = Post([&] {
      job();
      done.set_value();
    });
    if (posted) done.get_future().wait();
  }

  // Cancels what the library has under way, runs what was posted, ends the threads. Idempotent; not
  // from one of the threads.
  void Stop() {
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

 private:
  void Loop() {
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

  google::cloud::CompletionQueue cq_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopped_ = false;

  std::vector<std::thread> library_;
  std::thread thread_;
};

}  // namespace lockstep::pubsub::google_cloud
