#pragma once

#include <string>
#include <string_view>

#include "platform/clock.h"

namespace lockstep {

// Tells the service manager that started this process (systemd with Type=notify) how it is: the
// protocol of sd_notify(3), a datagram per message, without a library of systemd's. Silent where
// nobody listens. Safe from any thread.
class ServiceManager {
 public:
  // From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  ServiceManager();

  void Ready() const { Say("READY=1"); }
  void Reloading() const;  // Ready() follows
  void Stopping() const { Say("STOPPING=1"); }

  // How often it wants to hear that the process lives; 0 = not at all.
  Millis watchdog() const { return watchdog_; }
  void Alive() const { Say("WATCHDOG=1"); }

 private:
  void Say(std::string_view message) const;

  std::string socket_;  // empty = nobody listens
  Millis watchdog_{0};
};

}  // namespace lockstep
