#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "google/cloud/completion_queue.h"

namespace lockstep::pubsub::google_cloud {

// The threads of a publisher or a receiver: some on which google-cloud-cpp works, and one for our
// code around it, to which the library's callbacks only post.
class Worker {
 public:
  // With fewer than four threads the library starts one callback per millisecond.
  explicit Worker(int library_threads);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  google::cloud::CompletionQueue cq() const { return cq_; }

  // Runs `job` on our thread, in the order of the calls. False after Stop: it will not run.
  bool Post(std::function<void()> job);
  // The same, and waits for it. Not from the thread itself.
  void Run(const std::function<void()>& job);

  // Cancels what the library has under way, runs what was posted, ends the threads. Idempotent; not
  // from one of the threads.
  void Stop();

 private:
  void Loop();

  google::cloud::CompletionQueue cq_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopped_ = false;

  std::vector<std::thread> library_;
  std::thread thread_;
};

}  // namespace lockstep::pubsub::google_cloud
