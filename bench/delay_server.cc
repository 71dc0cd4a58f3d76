#include "bench/delay_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

// The length of a whole request at the beginning of `bytes`; 0 = more is to come.
size_t WholeRequest(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  constexpr std::string_view kLength = "Content-Length: ";
  const size_t length = bytes.find(kLength);
  size_t body = 0;
  if (length < end) body = std::strtoul(bytes.data() + length + kLength.size(), nullptr, 10);
  return bytes.size() >= end + 4 + body ? end + 4 + body : 0;
}

[[noreturn]] void Serve(int listener, std::chrono::microseconds delay) {
  struct Due {
    Clock::time_point at;
    int socket;
  };
  std::unordered_map<int, std::string> buffers;
  std::deque<Due> due;
  const int epoll = epoll_create1(0);
  const auto watch = [&](int socket) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
  };
  watch(listener);
  std::array<epoll_event, 256> events;
  std::array<char, 65'536> bytes;
  while (true) {
    timespec wait{.tv_sec = 1, .tv_nsec = 0};
    if (!due.empty()) {
      const auto left = std::max(Clock::duration(0), due.front().at - Clock::now());
      wait = {.tv_sec = 0,
              .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count()};
    }
    const int count = epoll_pwait2(epoll, events.data(), events.size(), &wait, nullptr);
    for (int i = 0; i < count; ++i) {
      const int socket = events[static_cast<size_t>(i)].data.fd;
      if (socket == listener) {
        const int accepted = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
        const int on = 1;
        setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (accepted >= 0) watch(accepted);
        continue;
      }
      const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
      if (got <= 0) {
        buffers.erase(socket);
        close(socket);
        continue;
      }
      std::string& buffer = buffers[socket];
      buffer.append(bytes.data(), static_cast<size_t>(got));
      while (const size_t whole = WholeRequest(buffer)) {
        buffer.erase(0, whole);
        due.push_back({Clock::now() + delay, socket});
      }
    }
    while (!due.empty() && due.front().at <= Clock::now()) {
      [[maybe_unused]] const ssize_t sent =
          send(due.front().socket, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
      due.pop_front();
    }
  }
}

}  // namespace

DelayServer::DelayServer(std::chrono::microseconds delay) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, any, size) != 0 || listen(listener, 4096) != 0 ||
      getsockname(listener, any, &size) != 0) {
    throw std::runtime_error("no port for the server");
  }
  port_ = ntohs(address.sin_port);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Serve(listener, delay);
  }
  close(listener);
}

DelayServer::~DelayServer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string DelayServer::url() const { return fmt::format("http://127.0.0.1:{}/in", port_); }

}  // namespace lockstep::bench
