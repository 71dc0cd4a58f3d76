#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "platform/status.h"

namespace lockstep::publisher {

// The one thread of a Service, with the life that platform/daemon/service.h promises: it begins
// once at most and never after a Stop, and everybody who stops it waits for its end. Safe from any
// thread.
class ServiceThread {
 public:
  absl::Status Start(std::function<void()> run) {
    std::scoped_lock lock(mu_);
    if (begun_) return FailedPrecondition("it was started or stopped before");
    begun_ = true;
    thread_ = std::thread(std::move(run));
    return absl::OkStatus();
  }

  // `ask` tells the thread to end; one that begins afterwards ends at once.
  void Stop(const std::function<void()>& ask) {
    ask();
    std::scoped_lock lock(mu_);
    begun_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mu_;
  bool begun_ = false;
  std::thread thread_;
};

}  // namespace lockstep::publisher
