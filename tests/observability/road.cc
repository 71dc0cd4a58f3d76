#include "tests/observability/road.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <regex>
#include <stdexcept>

namespace lockstep::observability {
namespace {

constexpr uint32_t kProtocol3 = 196608;  // of a session's first message; others ask for encryption

bool Receive(int fd, char* to, size_t size) {
  for (size_t have = 0; have < size;) {
    const ssize_t got = ::recv(fd, to + have, size - have, 0);
    if (got <= 0) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

bool Send(int fd, const char* bytes, size_t size) {
  for (size_t sent = 0; sent < size;) {
    const ssize_t took = ::send(fd, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (took <= 0) return false;
    sent += static_cast<size_t>(took);
  }
  return true;
}

uint32_t Number(const char* bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes, sizeof(number));
  return ntohl(number);
}

sockaddr_in Address(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

}  // namespace

Road::Road(const std::string& url) {
  std::smatch parts;
  if (!std::regex_match(url, parts, std::regex("(postgresql://[^@]*@)([0-9.]+):([0-9]+)(/.*)"))) {
    throw std::runtime_error("no road leads to " + url);
  }
  host_ = parts[2];
  port_ = std::stoi(parts[3]);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Address("127.0.0.1", 0);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, where, size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, where, &size) != 0) {
    throw std::runtime_error("no port for a road");
  }
  url_ = fmt::format("{}127.0.0.1:{}{}", parts[1].str(), ntohs(address.sin_port), parts[4].str());
  acceptor_ = std::thread([this] { Accept(); });
}

Road::~Road() {
  {
    std::scoped_lock lock(mu_);
    stop_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    for (const int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
    released_.notify_all();
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : sockets_) ::close(fd);
  ::close(listener_);
}

void Road::Hold() {
  std::scoped_lock lock(mu_);
  held_ = true;
}

void Road::Release() {
  std::scoped_lock lock(mu_);
  held_ = false;
  released_.notify_all();
}

void Road::AwaitRelease() {
  std::unique_lock lock(mu_);
  released_.wait(lock, [this] { return !held_ || stop_; });
}

void Road::Accept() {
  for (int client = 0; (client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    ++asked_;
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Address(host_, port_);
    const bool reached =
        ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    std::scoped_lock lock(mu_);
    sockets_.insert(sockets_.end(), {client, server});
    if (stop_) return;
    if (!reached) {
      ::shutdown(client, SHUT_RDWR);
      continue;
    }
    threads_.emplace_back([this, client, server] { Forward(client, server); });
    threads_.emplace_back([this, client, server] { Return(server, client); });
  }
}

bool Road::PassesOn(int from, int to, bool typed) {
  const size_t head = typed ? 5 : 4;
  std::string message(head, '\0');
  if (!Receive(from, message.data(), head)) return false;
  const size_t body = Number(message.data() + head - 4) - 4;
  message.resize(head + body);
  if (!Receive(from, message.data() + head, body)) return false;
  // A simple query, or the Sync that ends an extended one.
  if (typed && (message[0] == 'Q' || message[0] == 'S')) ++asked_;
  AwaitRelease();
  if (!Send(to, message.data(), message.size())) return false;
  return typed || Number(message.data() + 4) == kProtocol3 || PassesOn(from, to, false);
}

void Road::Forward(int client, int server) {
  if (PassesOn(client, server, /*typed=*/false)) {
    while (PassesOn(client, server, /*typed=*/true)) {
    }
  }
  ::shutdown(server, SHUT_RDWR);
  ::shutdown(client, SHUT_RDWR);
}

void Road::Return(int server, int client) {
  char buffer[16384];
  for (ssize_t got = 0; (got = ::recv(server, buffer, sizeof(buffer), 0)) > 0;) {
    if (!Send(client, buffer, static_cast<size_t>(got))) break;
  }
  ::shutdown(client, SHUT_RDWR);
  ::shutdown(server, SHUT_RDWR);
}

}  // namespace lockstep::observability
