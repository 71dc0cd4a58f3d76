#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator/service/server.h"
#include "operations/rebuild.h"
#include "platform/metrics.h"
#include "runner/group/group.h"
#include "tests/support/test_database.h"

namespace lockstep::operations {

// A group on the emulator with declared projections, its runners, a publisher and readers: what a
// rebuild happens amid. Every key holds version_ of them at least once Settle has returned.
class RebuildWorld {
 public:
  static constexpr int kKeys = 20;

  // `group_file`: in place of one with a table of states and one of counts.
  explicit RebuildWorld(bool history = true, const std::string& group_file = "");
  ~RebuildWorld();

  void StartRunner(const std::string& instance);
  void StopRunners() { groups_.clear(); }
  runner::GroupStatus RunnerStatus() const { return groups_.back()->status(); }
  void Publish(int rounds);  // so many more versions of every key
  // What runners and drivers from now on are declared with.
  void Declare(const std::string& group_file);
  // A runner that says it has another mapping, and writes nothing.
  void PretendRunner(const std::string& instance, const std::string& mapping);
  void Send(std::vector<pubsub::Message> messages);
  bool Settle();  // until every key has its newest version, each event counted once

  // Publishing and reading until they are stopped; readers complain about an error, a missing row
  // or an old version.
  void StartLoad();
  void StopLoad();
  std::vector<std::string> complaints();
  int64_t reads() const { return reads_; }
  // From now on versions may go back: a rollback's tables catch up.
  void AllowStepBack() { step_back_ = true; }

  // Each with a connection of its own, as a process would have.
  struct Driver {
    std::unique_ptr<postgres::Connection> connection, source;
    std::unique_ptr<Rebuild> rebuild;
  };
  Driver NewDriver(const RebuildStep& at = {});
  absl::Status Begin(Rebuild& rebuild);
  absl::Status Resume(Rebuild& rebuild, bool despite_differences = false);

  // "" when no table, slot, group, subscription or snapshot of a rebuild is left.
  std::string Orphans();
  std::string Subscription();  // of the active slot
  bool Await(const std::string& sql, int64_t wanted);

  testing::TestDatabase database;
  emulator::Server server;
  std::unique_ptr<pubsub::Transport> transport;
  runner::GroupOptions options;
  std::vector<std::string> ignored_columns;
  Millis restarts{90'000};  // of drivers that are made from now on
  std::vector<std::string> notes;
  // Of drivers that are made from now on.
  std::vector<publisher::Declaration> backfills;
  std::string source_url;
  // Called before a version of every key is published.
  std::function<void(int64_t version)> before_publish = [](int64_t) {};

 private:
  void Read();

  std::string file_;
  bool counts_ = true;  // the group has a table of counts
  MetricsRegistry metrics_;
  std::unique_ptr<pubsub::Publisher> publisher_;
  std::vector<std::unique_ptr<runner::GroupEnvironment>> environments_;
  std::vector<std::unique_ptr<runner::Group>> groups_;
  std::atomic<int64_t> version_{0};
  std::atomic<int64_t> least_{0};  // what a reader may never see less of
  std::atomic<bool> step_back_{false};
  std::atomic<int64_t> reads_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> load_;
  std::mutex mu_;
  std::vector<std::string> complaints_;
};

}  // namespace lockstep::operations
