#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "platform/clock.h"

namespace lockstep::sagas {

// Ends the wait of one thread, from any other.
class WakeUp {
 public:
  WakeUp() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (event_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~WakeUp() { ::close(event_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  void Wake() {
    const uint64_t one = 1;
    // Full means that a wake is pending already.
    [[maybe_unused]] const auto written = ::write(event_, &one, sizeof(one));
  }

  // Waits for a Wake, or bytes on `socket` (-1 = none), but not longer than that.
  void Wait(int socket, Millis timeout) {
    pollfd fds[2] = {{event_, POLLIN, 0}, {socket, POLLIN, 0}};
    const int ready = ::poll(fds, socket >= 0 ? 2 : 1,
                             static_cast<int>(std::clamp<int64_t>(timeout.count(), 0, 3'600'000)));
    if (ready <= 0 || (fds[0].revents & POLLIN) == 0) return;
    uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(event_, &count, sizeof(count));
  }

 private:
  int event_ = -1;
};

}  // namespace lockstep::sagas
