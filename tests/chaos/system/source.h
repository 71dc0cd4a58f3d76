#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "postgres/connection.h"
#include "tests/chaos/system/ledger.h"

namespace lockstep::chaos {

struct SourceOptions {
  std::string database;
  std::string outbox;
  std::string topic;
  uint64_t seed = 1;
  int rate = 120;  // events a second
  int keys = 150;
};

// The service that owns the data: makes changes, in transactions that enqueue their events, and
// writes into the ledger what has committed. A transaction whose fate is unknown is made again with
// the same event ids, which enqueue takes once. Some transactions are rolled back: nothing of them
// may ever be seen.
//
// A thread of its own from Start to Stop.
class Source {
 public:
  Source(SourceOptions options, Ledger& ledger);
  ~Source();

  void Start();
  // It ends after the transaction that it is at, once the database has taken that.
  void RequestStop() { stop_ = true; }
  bool ended() const { return ended_; }
  void Stop();
  // One of the next transactions holds an event that the runners must refuse.
  void AddPoison() { ++poison_wanted_; }

  int64_t rolled_back() const { return rolled_back_; }
  int64_t in_doubt() const { return in_doubt_; }
  int64_t failed() const { return failed_; }

 private:
  struct State {  // of an aggregate
    int64_t version = 0;
    bool there = false;
    std::optional<std::string> a, b;
  };
  using States = std::map<std::string, State>;

  void Run();
  void Wait(Millis time);
  std::vector<Event> Change(States& states);
  std::vector<Event> Poisoned();
  Event Next(const std::string& key, State& state);
  Event Blank(const std::string& key, State& state);
  // Until it has been done; false when stopped before.
  bool Write(std::vector<Event>& events, bool commit);
  absl::Status Try(const std::vector<Event>& events, bool commit);
  std::string NewId();
  std::string Word();

  const SourceOptions options_;
  Ledger& ledger_;
  std::mt19937_64 random_;
  States states_;
  std::unique_ptr<postgres::Connection> connection_;
  int poisoned_ = 0;
  std::thread thread_;
  std::atomic<bool> stop_ = false, ended_ = false;
  std::atomic<int> poison_wanted_ = 0;
  std::atomic<int64_t> rolled_back_ = 0, in_doubt_ = 0, failed_ = 0;
};

}  // namespace lockstep::chaos
