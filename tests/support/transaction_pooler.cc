#include "tests/support/transaction_pooler.h"

#include <cstdint>

namespace lockstep::testing {
namespace {

// Everything up to ReadyForQuery, which is the last.
std::string ReadAnswer(int fd) {
  std::string answer;
  for (std::string message; (message = ReceiveMessage(fd, true)) != "";) {
    answer += message;
    if (message[0] == 'Z') return answer;
  }
  return "";
}

constexpr uint32_t kSslRequest = 80877103;
constexpr uint32_t kGssRequest = 80877104;

}  // namespace

TransactionPooler::TransactionPooler(const std::string& url, int sessions)
    : size_(static_cast<size_t>(sessions)), relay_(url, [this](int client) { Serve(client); }) {}

TransactionPooler::~TransactionPooler() {
  std::scoped_lock lock(mu_);
  stop_ = true;
  freed_.notify_all();
}

bool TransactionPooler::Open(const std::string& startup) {
  std::scoped_lock lock(mu_);
  while (sessions_.size() < size_) {
    const int session = relay_.Connect();
    if (session < 0 || !SendAll(session, startup)) return false;
    sessions_.push_back(session);
    busy_.push_back(false);
    greeting_ = ReadAnswer(session);
  }
  return !greeting_.empty();
}

bool TransactionPooler::Greet(int client) {
  for (std::string first; (first = ReceiveMessage(client, false)) != "";) {
    const uint32_t code = NumberAt(first, 4);
    if (code == kSslRequest || code == kGssRequest) {
      if (!SendAll(client, "N")) return false;
      continue;
    }
    return Open(first) && SendAll(client, greeting_);
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
  for (std::string message; (message = ReceiveMessage(client, true)) != "";) {
    if (message[0] == 'X') break;
    request += message;
    if (message[0] != 'Q' && message[0] != 'S') continue;  // until a query, or Sync
    ++queries_;
    if (session < 0) session = Take();
    if (session < 0 || !SendAll(session, request)) break;
    request.clear();
    const std::string answer = ReadAnswer(session);
    if (answer.empty() || !SendAll(client, answer)) break;
    const bool idle = answer.back() == 'I';
    if (idle && pools_transactions) {
      GiveBack(session);
      session = -1;
    }
  }
  if (session >= 0) GiveBack(session);
  Hang(client, client);
}

}  // namespace lockstep::testing
