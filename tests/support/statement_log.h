#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/pg_relay.h"

namespace lockstep::testing {

// A road to a database that writes down what is asked on it: exactly the statements of those who
// take this road, where the server's statistics count everybody's, and late.
class StatementLog {
 public:
  struct Asked {
    std::chrono::steady_clock::time_point at;  // before the server has seen it
    std::string what;  // a prepared statement's name, or the text of one that is not
  };

  explicit StatementLog(const std::string& url)
      : relay_(url, [this](int client) { Serve(client); }) {}

  const std::string& url() const { return relay_.url(); }  // the same database, through here
  std::vector<Asked> asked() const {
    const std::scoped_lock lock(mu_);
    return asked_;
  }

 private:
  // Answers pass as they are.
  static void Pass(int from, int to) {
    for (std::string bytes; (bytes = ReceiveSome(from)) != "";) {
      if (!SendAll(to, bytes)) break;
    }
    Hang(from, to);
  }

  void Serve(int client) {
    const int server = relay_.Connect();
    if (server < 0) return;
    relay_.Spawn([client, server] { Pass(server, client); });
    // What comes before the start-up packet (asking for encryption, which this road has not) has no
    // type, either.
    constexpr uint32_t kProtocol3 = 196608;
    std::string what;
    bool typed = false;
    for (std::string message; (message = ReceiveMessage(client, typed)) != "";) {
      if (!typed) {
        typed = NumberAt(message, 4) == kProtocol3;
      } else {
        Note(message, what);
      }
      if (!SendAll(server, message)) break;
    }
    Hang(client, server);
  }

  // `what`: of the statement that is being sent, until its Sync.
  void Note(const std::string& message, std::string& what) {
    const auto text_at = [&](size_t at) { return std::string(message.c_str() + at); };
    const char type = message[0];
    if (type == 'Q') what = text_at(5);
    if (type == 'P') {  // its name, then its text
      const std::string name = text_at(5);
      what = name.empty() ? text_at(5 + 1) : name;
    }
    if (type == 'B') {  // a portal, then the statement's name; none = the one just parsed
      const std::string name = text_at(5 + text_at(5).size() + 1);
      if (!name.empty()) what = name;
    }
    if (type != 'Q' && type != 'S') return;
    const std::scoped_lock lock(mu_);
    asked_.push_back({std::chrono::steady_clock::now(), std::exchange(what, "")});
  }

  mutable std::mutex mu_;
  std::vector<Asked> asked_;
  PgRelay relay_;  // last: its threads use the rest
};

}  // namespace lockstep::testing
