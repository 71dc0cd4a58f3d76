#include "tests/observability/road.h"

namespace lockstep::observability {
namespace {

using testing::ReceiveMessage;
using testing::ReceiveSome;
using testing::SendAll;

constexpr uint32_t kProtocol3 = 196608;  // of a session's first message; others ask for encryption

}  // namespace

Road::Road(const std::string& url) : relay_(url, [this](int client) { Serve(client); }) {}

Road::~Road() { Release(); }

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
  released_.wait(lock, [this] { return !held_; });
}

void Road::Serve(int client) {
  ++asked_;
  const int server = relay_.Connect();
  if (server < 0) return testing::Hang(client, client);
  relay_.Spawn([client, server] {
    for (std::string bytes; !(bytes = ReceiveSome(server)).empty() && SendAll(client, bytes);) {
    }
    testing::Hang(server, client);
  });
  if (PassesOn(client, server, /*typed=*/false)) {
    while (PassesOn(client, server, /*typed=*/true)) {
    }
  }
  testing::Hang(server, client);
}

bool Road::PassesOn(int from, int to, bool typed) {
  const std::string message = ReceiveMessage(from, typed);
  if (message.empty()) return false;
  // A simple query, or the Sync that ends an extended one.
  if (typed && (message[0] == 'Q' || message[0] == 'S')) ++asked_;
  AwaitRelease();
  if (!SendAll(to, message)) return false;
  return typed || testing::NumberAt(message, 4) == kProtocol3 || PassesOn(from, to, false);
}

}  // namespace lockstep::observability
