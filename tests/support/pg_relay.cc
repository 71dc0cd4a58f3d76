#include "tests/support/pg_relay.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <regex>
#include <stdexcept>
#include <utility>

namespace lockstep::testing {
namespace {

sockaddr_in Address(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

int Socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

bool ReceiveInto(int fd, std::string& bytes, size_t from) {
  while (from < bytes.size()) {
    const ssize_t got = ::recv(fd, bytes.data() + from, bytes.size() - from, 0);
    if (got <= 0) return false;
    from += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

PgRelay::PgRelay(const std::string& url, Serve serve) : serve_(std::move(serve)) {
  std::smatch parts;
  if (!std::regex_match(url, parts, std::regex("(postgresql://[^@]*@)([0-9.]+):([0-9]+)(/.*)"))) {
    throw std::runtime_error("no relay can stand before " + url);
  }
  host_ = parts[2];
  port_ = std::stoi(parts[3]);
  listener_ = Socket();
  sockaddr_in address = Address("127.0.0.1", 0);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, where, size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, where, &size) != 0) {
    throw std::runtime_error("no port for a relay");
  }
  url_ = fmt::format("{}127.0.0.1:{}{}", parts[1].str(), ntohs(address.sin_port), parts[4].str());
  acceptor_ = std::thread([this] { Accept(); });
}

PgRelay::~PgRelay() {
  {
    std::scoped_lock lock(mu_);
    stop_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    for (const int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();  // nothing adds to them any more
  for (const int fd : sockets_) ::close(fd);
  ::close(listener_);
}

bool PgRelay::Keep(int socket) {
  std::scoped_lock lock(mu_);
  sockets_.push_back(socket);
  if (stop_) ::shutdown(socket, SHUT_RDWR);
  return !stop_;
}

void PgRelay::Spawn(std::function<void()> run) {
  std::scoped_lock lock(mu_);
  if (!stop_) threads_.emplace_back(std::move(run));
}

void PgRelay::Accept() {
  for (int client = 0; (client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    if (!Keep(client)) return;
    Spawn([this, client] { serve_(client); });
  }
}

int PgRelay::Connect() {
  const int server = Socket();
  const sockaddr_in address = Address(host_, port_);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(server);
    return -1;
  }
  return Keep(server) ? server : -1;
}

bool SendAll(int fd, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t took = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (took <= 0) return false;
    sent += static_cast<size_t>(took);
  }
  return true;
}

std::string ReceiveSome(int fd) {
  std::string bytes(1 << 16, '\0');
  const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

std::string ReceiveMessage(int fd, bool typed) {
  const size_t head = typed ? 5 : 4;
  std::string message(head, '\0');
  if (!ReceiveInto(fd, message, 0)) return "";
  message.resize(head - 4 + NumberAt(message, head - 4));
  return ReceiveInto(fd, message, head) ? message : "";
}

uint32_t NumberAt(const std::string& message, size_t offset) {
  uint32_t number = 0;
  std::memcpy(&number, message.data() + offset, sizeof(number));
  return ntohl(number);
}

void Hang(int one, int other) {
  ::shutdown(one, SHUT_RDWR);
  ::shutdown(other, SHUT_RDWR);
}

}  // namespace lockstep::testing
