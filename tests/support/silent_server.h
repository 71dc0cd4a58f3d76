#pragma once

#include <atomic>
#include <string>

#include "tests/support/pg_relay.h"

namespace lockstep::testing {

// A database whose server can fall silent, as one whose processes are stopped: its kernel goes on
// taking what is sent, and nobody answers.
class SilentServer {
 public:
  explicit SilentServer(const std::string& url)
      : relay_(url, [this](int client) { Serve(client); }) {}

  const std::string& url() const { return relay_.url(); }  // the same database, through here
  std::atomic<bool> silent = false;

 private:
  void Serve(int client) {
    const int server = relay_.Connect();
    if (server < 0) return;
    relay_.Spawn([client, server] {
      for (std::string bytes; (bytes = ReceiveSome(server)) != "";) {
        if (!SendAll(client, bytes)) break;
      }
      Hang(client, server);
    });
    for (std::string bytes; (bytes = ReceiveSome(client)) != "";) {
      if (!silent && !SendAll(server, bytes)) break;
    }
    Hang(client, server);
  }

  PgRelay relay_;
};

}  // namespace lockstep::testing
