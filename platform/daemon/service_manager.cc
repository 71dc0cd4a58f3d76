#include "platform/daemon/service_manager.h"

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "platform/log/log.h"

namespace lockstep {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A manager that does not read is not waited for any longer than this.
constexpr timeval kPatience{.tv_sec = 2, .tv_usec = 0};

}  // namespace

ServiceManager::ServiceManager() : socket_(Environment("NOTIFY_SOCKET")) {
  // A path, or with @ a name in the abstract namespace.
  if (socket_.empty() || (socket_[0] != '/' && socket_[0] != '@')) socket_.clear();
  int64_t micros = 0;
  const std::string pid = Environment("WATCHDOG_PID");
  if (!absl::SimpleAtoi(Environment("WATCHDOG_USEC"), &micros) || micros <= 0) return;
  if (!pid.empty() && pid != std::to_string(::getpid())) return;  // meant for our parent
  watchdog_ = std::max(Millis(1), Millis(micros / 1000));
}

void ServiceManager::Reloading() const {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  Say(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.count()));
}

void ServiceManager::Say(std::string_view message) const {
  if (socket_.empty()) return;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (socket_.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int out = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool sent =
      out >= 0 && ::setsockopt(out, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience)) == 0 &&
      ::sendto(out, message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), length) >= 0;
  const int error = errno;
  if (out >= 0) ::close(out);
  if (!sent) {
    log::Warning("the service manager can't be told how this process is",
                 {{"socket", socket_}, {"message", message}, {"error", std::strerror(error)}});
  }
}

}  // namespace lockstep
