#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runner/testing/test_group.h"

namespace lockstep::runner {

// A private Postgres cluster with its own port, and a standby if one is asked for; gone with this
// object. scripts/lib/postgres.sh does the work.
class Cluster {
 public:
  Cluster();
  ~Cluster();

  void Backup();
  // The backup in place of the cluster. With recovery it becomes a timeline of its own.
  void Restore(bool recovery);
  void Dump();
  // The dump in a new database of the same name. In one transaction, as a runner that waits for it
  // must find all or nothing.
  void RestoreDump();

  // From now on url() names both servers: whoever connects finds the one that takes writes.
  void AddStandby(bool synchronous);
  void CutStandby();  // it lacks what commits from now on
  void FailOver();    // the primary is gone at once, and the standby takes its place

  const std::string& url() const { return url_; }
  // The standby alone, which takes no writes.
  std::string standby_url() const {
    return "postgresql://lockstep@127.0.0.1:" + standby_port_ + "/feed";
  }
  void Admin(const std::string& sql) const;
  const std::string& admin_url() const { return admin_url_; }

  // The last line that it prints.
  static std::string Bash(const std::string& script);

 private:
  std::string dir_, admin_url_, url_, port_, standby_port_;
};

// A cluster with a database, the test projector's tables in it, and groups on a bus in memory.
class ClusterWorld : public ::testing::Test {
 protected:
  static constexpr int kKeys = 8;

  ClusterWorld();
  ~ClusterWorld() override { StopLoad(); }

  int64_t Count(const std::string& sql) const;
  bool Await(const std::string& sql, int64_t wanted) const;
  // Every key is in the read model with the newest version, and every version counted once.
  bool AwaitModel() const;
  bool AwaitCheckpoints(int64_t past) const;
  bool AwaitAcks() const;
  int64_t Healed() const;

  std::unique_ptr<Group> NewGroup(const std::string& instance);
  void Publish();  // the next version of every key
  void StartLoad();
  void StopLoad();

  Cluster cluster_;
  testing::FakeBus bus_;
  MetricsRegistry metrics_;
  GroupOptions options_;
  std::vector<std::unique_ptr<GroupEnvironment>> environments_;
  const std::unique_ptr<pubsub::Publisher> publisher_ = bus_.NewPublisher({});
  std::atomic<int64_t> version_{0};
  std::atomic<bool> stop_{false};
  std::thread load_;
};

}  // namespace lockstep::runner
