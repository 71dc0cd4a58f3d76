#include "publisher/testing/transaction_pooler.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <regex>
#include <stdexcept>

namespace lockstep::publisher {
namespace {

bool ReadAll(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, to, size, 0);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const std::string& bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

uint32_t Number(const char* bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes, 4);
  return ntohl(number);
}

// A message with its type (none for a client's first), or nothing when the other side is gone.
std::string ReadMessage(int fd, bool typed) {
  std::string message(typed ? 5 : 4, '\0');
  if (!ReadAll(fd, message.data(), message.size())) return "";
  const size_t head = message.size();
  const uint32_t length = Number(message.data() + head - 4);
  message.resize(head + length - 4);
  return ReadAll(fd, message.data() + head, length - 4) ? message : "";
}

// Everything up to ReadyForQuery, which is the last.
std::string ReadAnswer(int fd) {
  std::string answer;
  for (std::string message; (message = ReadMessage(fd, true)) != "";) {
    answer += message;
    if (message[0] == 'Z') return answer;
  }
  return "";
}

int Socket(const std::string& host, int port, bool listen) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  const int done = listen ? ::bind(fd, where, sizeof(address)) + ::listen(fd, 64)
                          : ::connect(fd, where, sizeof(address));
  if (done != 0) throw std::runtime_error(fmt::format("socket {}:{}", host, port));
  return fd;
}

constexpr uint32_t kSslRequest = 80877103;
constexpr uint32_t kGssRequest = 80877104;

}  // namespace

TransactionPooler::TransactionPooler(const std::string& url, int sessions)
    : size_(static_cast<size_t>(sessions)) {
  std::smatch parts;
  if (!std::regex_match(url, parts, std::regex("(postgresql://[^@]*@)([0-9.]+):([0-9]+)(/.*)"))) {
    throw std::runtime_error("an address that the pooler does not know: " + url);
  }
  host_ = parts[2];
  port_ = std::stoi(parts[3]);
  listener_ = Socket("127.0.0.1", 0, true);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  url_ = fmt::format("{}127.0.0.1:{}{}", parts[1].str(), ntohs(address.sin_port), parts[4].str());
  acceptor_ = std::thread([this] { Accept(); });
}

TransactionPooler::~TransactionPooler() {
  {
    std::scoped_lock lock(mu_);
    stop_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    for (const int fd : clients_) ::shutdown(fd, SHUT_RDWR);
    for (const int fd : sessions_) ::shutdown(fd, SHUT_RDWR);
    freed_.notify_all();
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : clients_) ::close(fd);
  for (const int fd : sessions_) ::close(fd);
  ::close(listener_);
}

void TransactionPooler::Accept() {
  for (int client = 0; (client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    std::scoped_lock lock(mu_);
    clients_.push_back(client);
    if (stop_) return;
    threads_.emplace_back([this, client] { Serve(client); });
  }
}

bool TransactionPooler::Open(const std::string& startup) {
  std::scoped_lock lock(mu_);
  while (sessions_.size() < size_) {
    const int session = Socket(host_, port_, false);
    sessions_.push_back(session);
    busy_.push_back(false);
    if (!WriteAll(session, startup)) return false;
    greeting_ = ReadAnswer(session);
  }
  return !greeting_.empty();
}

bool TransactionPooler::Greet(int client) {
  for (std::string first; (first = ReadMessage(client, false)) != "";) {
    const uint32_t code = Number(first.data() + 4);
    if (code == kSslRequest || code == kGssRequest) {
      if (!WriteAll(client, "N")) return false;
      continue;
    }
    return Open(first) && WriteAll(client, greeting_);
  }
  return false;
}

int TransactionPooler::Take() {
  std::unique_lock lock(mu_);
  while (!stop_) {
    for (size_t i = 0; i < size_; ++i) {
      const size_t place = (next_ + i) % size_;
      if (busy_[place]) continue;
      busy_[place] = true;
      next_ = place + 1;
      return sessions_[place];
    }
    freed_.wait(lock);
  }
  return -1;
}

void TransactionPooler::GiveBack(int session) {
  std::scoped_lock lock(mu_);
  for (size_t i = 0; i < sessions_.size(); ++i) {
    if (sessions_[i] == session) busy_[i] = false;
  }
  freed_.notify_all();
}

void TransactionPooler::Serve(int client) {
  int session = -1;
  std::string request;
  if (!Greet(client)) return;
  for (std::string message; (message = ReadMessage(client, true)) != "";) {
    if (message[0] == 'X') break;
    request += message;
    if (message[0] != 'Q' && message[0] != 'S') continue;  // until a query, or Sync
    ++queries_;
    if (session < 0) session = Take();
    if (session < 0 || !WriteAll(session, request)) break;
    request.clear();
    const std::string answer = ReadAnswer(session);
    if (answer.empty() || !WriteAll(client, answer)) break;
    const bool idle = answer.back() == 'I';
    if (idle && pools_transactions) {
      GiveBack(session);
      session = -1;
    }
  }
  if (session >= 0) GiveBack(session);
  ::shutdown(client, SHUT_RDWR);
}

}  // namespace lockstep::publisher
