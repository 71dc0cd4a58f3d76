#pragma once

#include <functional>
#include <future>

#include "platform/clock.h"

namespace lockstep::pubsub::grpc_client {

// For tests: a function of the timers calls Begin, and with that the end of its owner on another
// thread. That must not be over before the function is.
class EndsEarly {
 public:
  void Begin(std::function<void()> end) {
    ending_ = std::async(std::launch::async, std::move(end));
    early_.set_value(ending_.wait_for(Millis(100)) == std::future_status::ready);
  }
  bool Await() { return early_.get_future().get(); }

 private:
  std::promise<bool> early_;
  std::future<void> ending_;  // its destructor waits
};

}  // namespace lockstep::pubsub::grpc_client
