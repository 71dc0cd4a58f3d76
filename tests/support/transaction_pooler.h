#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/pg_relay.h"

namespace lockstep::testing {

// A transaction pooler as PgBouncer is one, small: its clients share some sessions of Postgres, and
// each transaction runs on the next that is free. Knows trust authentication alone, and no COPY.
class TransactionPooler {
 public:
  // `url`: postgresql://user@host:port/database.
  TransactionPooler(const std::string& url, int sessions);
  ~TransactionPooler();

  // The same database, through it.
  const std::string& url() const { return relay_.url(); }

  // False: a client keeps its session, as in a pool in session mode.
  std::atomic<bool> pools_transactions = true;

  // How many queries came through, of all clients.
  int64_t queries() const { return queries_; }

 private:
  void Serve(int client);
  // Answers what a client has to say before its first query, and has the sessions opened.
  bool Greet(int client);
  bool Open(const std::string& startup);
  // One of them that is free, in turn.
  int Take();
  void GiveBack(int session);

  std::atomic<int64_t> queries_ = 0;

  std::mutex mu_;
  std::condition_variable freed_;
  bool stop_ = false;
  const size_t size_;
  std::vector<int> sessions_;
  std::vector<bool> busy_;
  size_t next_ = 0;
  std::string greeting_;  // of a session, up to its first ReadyForQuery

  PgRelay relay_;
};

}  // namespace lockstep::testing
