#include "tests/chaos/system/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::chaos {
namespace {

constexpr size_t kBuffer = 256 * 1024;  // per direction

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Prepare(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

// False when the connection is over.
bool Read(int fd, std::string& to) {
  char buffer[16 * 1024];
  const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
  if (n > 0) to.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Write(int fd, std::string& from) {
  const ssize_t n = ::send(fd, from.data(), from.size(), MSG_NOSIGNAL);
  if (n > 0) from.erase(0, static_cast<size_t>(n));
  return n >= 0 || errno == EAGAIN || errno == EINTR;
}

}  // namespace

Gate::Gate(int target_port)
    : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      target_(target_port) {
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (::bind(listening_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listening_, 256) != 0 ||
      ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("a gate can't listen");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

Gate::~Gate() {
  {
    std::scoped_lock lock(mu_);
    stop_ = true;
  }
  Wake();
  thread_.join();
  ::close(listening_);
  ::close(wake_);
}

void Gate::Reset() {
  {
    std::scoped_lock lock(mu_);
    reset_ = true;
  }
  Wake();
}

void Gate::Stall() {
  {
    std::scoped_lock lock(mu_);
    stalled_ = true;
  }
  Wake();
}

void Gate::Flow() {
  {
    std::scoped_lock lock(mu_);
    stalled_ = false;
  }
  Wake();
}

void Gate::Retarget(int target_port) {
  std::scoped_lock lock(mu_);
  target_ = target_port;
}

void Gate::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
}

void Gate::Close(const Link& link, bool reset) {
  for (const int fd : {link.client, link.server}) {
    const linger now{1, 0};  // closing with unsent bytes dropped is a reset
    if (reset) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    ::close(fd);
  }
}

void Gate::Let() {
  const int client = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int target = 0;
  {
    std::scoped_lock lock(mu_);
    target = target_;
  }
  const sockaddr_in address = Loopback(target);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Close({client, server, {}, {}}, /*reset=*/true);
    return;
  }
  Prepare(client);
  Prepare(server);
  links_.push_back({client, server, {}, {}});
}

bool Gate::Move(Link& link, short client_events, short server_events) {
  constexpr short kRead = POLLIN | POLLHUP | POLLERR;
  bool open = true;
  if (client_events & kRead) open = Read(link.client, link.up) && open;
  if (server_events & kRead) open = Read(link.server, link.down) && open;
  if (!link.up.empty()) open = Write(link.server, link.up) && open;
  if (!link.down.empty()) open = Write(link.client, link.down) && open;
  return open;
}

void Gate::Run() {
  while (true) {
    bool stalled = false;
    bool reset = false;
    {
      std::scoped_lock lock(mu_);
      stalled = stalled_ && !stop_;
      reset = std::exchange(reset_, false) || stop_;
      if (stop_) stalled = false;
    }
    if (reset) {
      for (const Link& link : links_) Close(link, /*reset=*/true);
      links_.clear();
      std::scoped_lock lock(mu_);
      if (stop_) return;
    }
    std::vector<pollfd> watched = {{wake_, POLLIN, 0}};
    if (!stalled) {
      watched.push_back({listening_, POLLIN, 0});
      for (const Link& link : links_) {
        const auto wanted = [](const std::string& in, const std::string& out) {
          return static_cast<short>((in.size() < kBuffer ? POLLIN : 0) |
                                    (out.empty() ? 0 : POLLOUT));
        };
        watched.push_back({link.client, wanted(link.up, link.down), 0});
        watched.push_back({link.server, wanted(link.down, link.up), 0});
      }
    }
    if (::poll(watched.data(), watched.size(), -1) < 0) continue;
    if (watched[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t drained = ::read(wake_, &count, sizeof(count));
      continue;  // an order came: look at it before a byte moves
    }
    size_t at = 2;
    for (auto link = links_.begin(); link != links_.end(); at += 2) {
      if (Move(*link, watched[at].revents, watched[at + 1].revents)) {
        ++link;
      } else {
        Close(*link, /*reset=*/false);
        link = links_.erase(link);
      }
    }
    if (watched[1].revents != 0) Let();
  }
}

}  // namespace lockstep::chaos
