#include "platform/daemon/http_loop.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "platform/status.h"

namespace lockstep {
namespace {

constexpr int kAcceptsPerRound = 16;  // fewer than one peer may have: each gets to be read
constexpr Millis kPauseWithoutDescriptors{100};

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// "" and `*` are no addresses: nobody should listen everywhere by a slip.
absl::StatusOr<Addresses> Resolve(std::string host, int port) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unavailable("{}", gai_strerror(error));
  return Addresses(found, &freeaddrinfo);
}

// A socket that listens; -1 with errno.
int ListenOn(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));  // :: takes IPv4 too
  }
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

std::string NumericName(const sockaddr_storage& address, socklen_t size, int what) {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
              sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  return what == NI_NUMERICSERV ? port : host;
}

}  // namespace

Waker::Waker() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Waker::~Waker() {
  if (fd_ >= 0) close(fd_);
}

void Waker::Wake() const {
  const uint64_t one = 1;
  // It fails only when a wake is pending already.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void Waker::Drain() const {
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &wakes, sizeof(wakes));
}

absl::StatusOr<std::unique_ptr<HttpServer::Loop>> HttpServer::Loop::Open(const HttpOptions& options,
                                                                         Respond respond) {
  std::unique_ptr<Loop> loop(new Loop(options, std::move(respond)));
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(options.address, options.port));
  for (const addrinfo* at = addresses.get(); at != nullptr && loop->listener_ < 0;
       at = at->ai_next) {
    loop->listener_ = ListenOn(*at);
  }
  if (loop->listener_ < 0) return Unavailable("{}", std::strerror(errno));
  if (loop->waker_->fd() < 0) return Unavailable("{}", std::strerror(errno));
  return loop;
}

HttpServer::Loop::~Loop() {
  while (!connections_.empty()) Drop(connections_.begin());
  if (listener_ >= 0) close(listener_);
}

int HttpServer::Loop::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  return std::stoi(NumericName(address, size, NI_NUMERICSERV));
}

size_t HttpServer::Loop::waiting() const {
  return static_cast<size_t>(
      std::ranges::count(connections_, Connection::kWaits, &Connection::stage));
}

size_t HttpServer::Loop::waiting(const std::string& peer) const {
  return static_cast<size_t>(std::ranges::count_if(connections_, [&](const Connection& one) {
    return one.stage == Connection::kWaits && one.peer == peer;
  }));
}

void HttpServer::Loop::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    SteadyTime now = Clock::System().Steady();
    std::vector<pollfd> waits = WhatToWaitFor(now);
    poll(waits.data(), waits.size(), static_cast<int>(UntilSomethingIsDue(now).count()));
    now = Clock::System().Steady();
    waker_->Drain();  // before the replies are looked for: one that comes then wakes again
    auto wait = waits.begin() + 2;
    for (auto it = connections_.begin(); it != connections_.end() && wait != waits.end(); ++wait) {
      const bool has_news = TakeReply(*it, now) || wait->revents != 0;
      const bool goes_on = has_news ? Advance(*it, now) : now < it->until;
      it = goes_on ? std::next(it) : Drop(it);
    }
    DropUntaken();
    if (waits[0].revents != 0) Accept(now);
  }
}

std::vector<pollfd> HttpServer::Loop::WhatToWaitFor(SteadyTime now) const {
  const short accepts = now < accept_after_ ? 0 : POLLIN;
  std::vector<pollfd> waits = {{.fd = listener_, .events = accepts, .revents = 0},
                               {.fd = waker_->fd(), .events = POLLIN, .revents = 0}};
  for (const Connection& connection : connections_) {
    const short events = connection.stage == Connection::kWrites ? POLLOUT : POLLIN;
    waits.push_back({.fd = connection.fd, .events = events, .revents = 0});
  }
  return waits;
}

Millis HttpServer::Loop::UntilSomethingIsDue(SteadyTime now) const {
  SteadyTime due = now + Millis(60'000);
  if (now < accept_after_) due = std::min(due, accept_after_);
  for (const Connection& connection : connections_) due = std::min(due, connection.until);
  return std::max(Millis(0), std::chrono::ceil<Millis>(due - now));
}

void HttpServer::Loop::Accept(SteadyTime now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!connections_.empty()) Drop(connections_.begin());
        accept_after_ = now + kPauseWithoutDescriptors;
      }
      return;
    }
    Connection made{.fd = fd,
                    .peer = NumericName(address, size, NI_NUMERICHOST),
                    .until = now + options_.request_timeout};
    MakeRoomFor(made.peer);
    const auto it = connections_.insert(connections_.end(), std::move(made));
    if (!Advance(*it, now)) Drop(it);  // mostly the request is there already
  }
}

// Those that wait have places of their own.
void HttpServer::Loop::MakeRoomFor(const std::string& peer) {
  const auto any = [](const Connection& connection) {
    return connection.stage != Connection::kWaits;
  };
  const auto same = [&](const Connection& connection) {
    return any(connection) && connection.peer == peer;
  };
  const auto count = [&](const auto& which) {
    return static_cast<size_t>(std::ranges::count_if(connections_, which));
  };
  if (count(same) >= options_.per_peer) {
    Drop(std::ranges::find_if(connections_, same));
  } else if (count(any) >= options_.connections) {
    Drop(std::ranges::find_if(connections_, any));
  }
}

void HttpServer::Loop::DropUntaken() {
  size_t unsent = 0;
  for (const Connection& connection : connections_) unsent += connection.text.size();
  for (auto it = connections_.begin(); it != connections_.end() && unsent > options_.max_unsent;) {
    const bool writes = it->stage == Connection::kWrites;
    if (writes) unsent -= it->text.size();
    it = writes ? Drop(it) : std::next(it);
  }
}

bool HttpServer::Loop::Advance(Connection& connection, SteadyTime now) {
  if (now >= connection.until) return false;
  if (connection.stage == Connection::kReads && !Read(connection, now)) return false;
  if (connection.stage == Connection::kWrites && !Write(connection, now)) return false;
  if (connection.stage != Connection::kEnds && connection.stage != Connection::kWaits) return true;
  // The client ends it: bytes that were not read would take the answer from it. While it waits, an
  // end says that it has gone: one that ended its own side only can't be told from that, and would
  // hold a place until its time is over.
  char ignored[4096];
  const ssize_t got = recv(connection.fd, ignored, sizeof(ignored), 0);
  return got > 0 || (got < 0 && WouldBlock(errno));
}

bool HttpServer::Loop::Read(Connection& connection, SteadyTime now) {
  char bytes[4096];
  while (connection.text.size() <= options_.max_head) {
    const ssize_t got = recv(connection.fd, bytes, sizeof(bytes), 0);
    if (got < 0) return WouldBlock(errno);
    if (got == 0) return false;
    connection.text.append(bytes, static_cast<size_t>(got));
    if (connection.text.find("\r\n\r\n") != std::string::npos) break;
  }
  const auto reply = std::make_shared<HttpReply::State>();
  reply->waker = waker_;
  reply->peer = connection.peer;
  std::optional<std::string> answer = respond_(connection.text, reply);
  connection.stage = answer ? Connection::kWrites : Connection::kWaits;
  connection.until = now + (answer ? options_.request_timeout : options_.max_wait);
  connection.text = std::move(answer).value_or("");
  if (connection.stage == Connection::kWrites) return true;
  connection.reply = reply;
  TakeReply(connection, now);
  return true;
}

bool HttpServer::Loop::TakeReply(Connection& connection, SteadyTime now) {
  if (connection.stage != Connection::kWaits) return false;
  {
    const std::scoped_lock lock(connection.reply->mu);
    if (!connection.reply->text) return false;
    connection.text = *std::move(connection.reply->text);
    connection.reply->gone = true;
  }
  connection.reply.reset();
  connection.stage = Connection::kWrites;
  connection.until = now + options_.request_timeout;
  return true;
}

bool HttpServer::Loop::Write(Connection& connection, SteadyTime now) {
  size_t sent = 0;
  while (sent < connection.text.size()) {
    const ssize_t got = send(connection.fd, connection.text.data() + sent,
                             connection.text.size() - sent, MSG_NOSIGNAL);
    if (got < 0) {
      const bool goes_on = WouldBlock(errno);
      if (sent > 0) connection.until = now + options_.request_timeout;  // it takes it, if slowly
      connection.text.erase(0, sent);
      return goes_on;
    }
    sent += static_cast<size_t>(got);
  }
  connection.text.clear();
  connection.stage = Connection::kEnds;
  connection.until = now + options_.request_timeout;
  shutdown(connection.fd, SHUT_WR);
  return true;
}

HttpServer::Loop::Connections::iterator HttpServer::Loop::Drop(Connections::iterator connection) {
  close(connection->fd);
  if (connection->reply != nullptr) {
    const std::scoped_lock lock(connection->reply->mu);
    connection->reply->gone = true;
  }
  return connections_.erase(connection);
}

}  // namespace lockstep
