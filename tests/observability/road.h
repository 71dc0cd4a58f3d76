#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "tests/support/pg_relay.h"

namespace lockstep::observability {

// The road from a process to its database: passes every byte on, counts the queries, and can hold
// them back, so that the database is there and never answers. Knows nothing of encryption.
class Road {
 public:
  explicit Road(const std::string& url);
  ~Road();

  // The same database, over this road.
  const std::string& url() const { return relay_.url(); }

  // From now on queries and new sessions come as far as here; until Release.
  void Hold();
  void Release();

  // How often a client wanted something: each new session and each query, held or not.
  int64_t asked() const { return asked_; }

 private:
  void Serve(int client);
  // A client's messages, one at a time: it can be held between any two.
  bool PassesOn(int from, int to, bool typed);
  void AwaitRelease();

  std::atomic<int64_t> asked_ = 0;

  std::mutex mu_;
  std::condition_variable released_;
  bool held_ = false;

  testing::PgRelay relay_;
};

}  // namespace lockstep::observability
