#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/sagas/chaos/records.h"
#include "tests/sagas/chaos/world.h"

namespace lockstep::sagachaos {

struct CustomerOptions {
  uint64_t seed = 1;
  int sagas = 500;
  int rate = 25;  // sagas a second
};

// Starts sagas as a service does, in transactions of its own, some of which roll back; asks again
// with the same key when an answer was lost, and now and then for no reason; signals approvals,
// early and late. Keeps what it wanted of each saga in memory, outside everything under attack.
//
// A thread of its own with a connection of its own, from Start until all are started or Stop.
class Customers {
 public:
  Customers(const World& world, CustomerOptions options);
  ~Customers();

  void Start();
  void Stop();
  // So many more, at once, most of which will wait for an approval. From any thread.
  void Burst(int sagas) { burst_ += sagas; }
  bool ended() const { return ended_; }
  int started() const { return started_; }

  // By key. After the end.
  std::map<std::string, Plan>& plans() { return plans_; }
  const std::vector<std::string>& rolled_back() const { return rolled_back_; }
  int asked_again() const { return asked_again_; }
  // What should not have been: another id for the same key.
  const std::vector<std::string>& complaints() const { return complaints_; }

  // Some that are under way, for operators to meddle with; each once.
  std::vector<std::string> TakeSome();

 private:
  struct Wanted {
    std::string key;
    Plan plan;
    bool roll_back = false, signal_early = false;
    std::string id;
  };

  void Run();
  Wanted Next(bool of_burst);
  bool Connected();
  // Whether the transaction's end is known.
  bool Try(std::vector<Wanted>& batch);
  void Keep(const std::vector<Wanted>& batch);
  absl::Status StartOne(postgres::Executor& executor, Wanted& wanted);
  void SignalSome();

  const World& world_;
  const CustomerOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<postgres::Connection> connection_;
  std::thread thread_;
  std::atomic<bool> stop_ = false, ended_ = false;
  std::atomic<int> started_ = 0, burst_ = 0;
  int64_t given_ = 0;  // of burst_, made
  int made_ = 0, asked_again_ = 0;
  std::map<std::string, Plan> plans_;
  std::map<std::string, std::string> ids_;  // by key
  struct Approval {
    std::string id;
    SteadyTime due;
    int failed = 0;
  };
  std::vector<Approval> to_approve_;
  std::vector<std::string> rolled_back_, complaints_;

  std::mutex mu_;
  std::vector<std::string> under_way_;  // ids
};

}  // namespace lockstep::sagachaos
