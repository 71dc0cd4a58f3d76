#include "tests/support/http_test_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>

namespace lockstep::testing {
namespace {

bool ReadMore(int socket, std::string& bytes) {
  std::array<char, 65536> buffer;
  const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  bytes.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

bool SendAllBytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

HttpTestServer::Seen ParseHead(const std::string& head) {
  HttpTestServer::Seen seen;
  std::istringstream lines(head);
  lines >> seen.method >> seen.path;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string value = line.substr(colon + 2);
    if (!value.empty() && value.back() == '\r') value.pop_back();
    seen.headers[name] = value;
  }
  return seen;
}

}  // namespace

HttpTestServer::HttpTestServer(Answer answer, bool ipv6) : answer_(std::move(answer)) {
  listener_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_addr = in6addr_loopback;
  socklen_t size = ipv6 ? sizeof(in6) : sizeof(in);
  auto* const address = ipv6 ? reinterpret_cast<sockaddr*>(&in6) : reinterpret_cast<sockaddr*>(&in);
  if (bind(listener_, address, size) != 0 || listen(listener_, 1024) != 0) std::abort();
  getsockname(listener_, address, &size);
  port_ = ntohs(ipv6 ? in6.sin6_port : in.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

HttpTestServer::~HttpTestServer() {
  {
    const std::scoped_lock lock(mu_);
    stopping_ = true;
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  }
  changed_.notify_all();
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  close(listener_);
  for (std::thread& thread : threads_) thread.join();
  for (const int socket : sockets_) close(socket);
}

std::string HttpTestServer::url(const std::string& path) const {
  return fmt::format("http://127.0.0.1:{}{}", port_, path);
}

std::vector<HttpTestServer::Seen> HttpTestServer::seen() const {
  const std::scoped_lock lock(mu_);
  return seen_;
}

std::string HttpTestServer::Ok(const std::string& body) { return Status(200, "", body); }

std::string HttpTestServer::Status(int status, const std::string& headers,
                                   const std::string& body) {
  return fmt::format("HTTP/1.1 {} Whatever\r\n{}Content-Length: {}\r\n\r\n{}", status, headers,
                     body.size(), body);
}

void HttpTestServer::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::scoped_lock lock(mu_);
    if (stopping_ || socket < 0) {
      if (socket >= 0) close(socket);
      return;
    }
    sockets_.push_back(socket);
    const int number = static_cast<int>(sockets_.size());
    threads_.emplace_back([this, socket, number] { Serve(socket, number); });
  }
}

void HttpTestServer::Serve(int socket, int number) {
  std::string bytes;
  while (true) {
    size_t end = 0;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos) {
      if (!ReadMore(socket, bytes)) return;
    }
    Seen seen = ParseHead(bytes.substr(0, end + 2));
    seen.connection = number;
    bytes.erase(0, end + 4);
    const size_t length = std::strtoul(seen.headers["content-length"].c_str(), nullptr, 10);
    while (bytes.size() < length) {
      if (!ReadMore(socket, bytes)) return;
    }
    seen.body = bytes.substr(0, length);
    bytes.erase(0, length);
    {
      const std::scoped_lock lock(mu_);
      seen_.push_back(seen);
    }
    changed_.notify_all();
    const int now = ++at_once_;
    for (int most = most_at_once_; most < now && !most_at_once_.compare_exchange_weak(most, now);) {
    }
    std::string answer = answer_(seen);
    --at_once_;
    if (answer == kHang) {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [&] { return stopping_; });
      return;
    }
    const bool ends = answer.empty() || answer.ends_with(kClose);
    if (answer.ends_with(kClose)) answer.resize(answer.size() - (sizeof(kClose) - 1));
    if (!SendAllBytes(socket, answer) || ends) {
      shutdown(socket, SHUT_RDWR);
      return;
    }
  }
}

}  // namespace lockstep::testing
