#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/service/server.h"
#include "pubsub/transport.h"
#include "runner/testing/test_group.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/process.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {

// lockstep-runner and lockstepctl as their users run them, with files in a folder of their own, the
// emulator and a read model rm.items(id, version, a).
class BinaryWorld {
 public:
  // With another emulator than ours (host:port), in a project of this world's own.
  explicit BinaryWorld(const std::string& emulator = "");
  ~BinaryWorld();

  // Settings of the group, as lines of YAML, for runners started afterwards; and of the runner.
  std::string group_settings, settings;
  std::string http = "{enabled: false}";
  std::string projection;  // the group's file
  std::string database_url, emulator_host;

  std::unique_ptr<testing::Process> Runner(const std::vector<std::string>& more = {});
  struct Ran {
    int status = 0;
    std::string out;  // without stderr
    std::string err;
  };
  Ran Ctl(const std::string& arguments);

  // `data` in place of {"id": …, "a": …}.
  void Publish(const std::string& id, int64_t version, const std::string& data = "",
               const std::string& event_id = "");
  // Until a transaction of the runner waits for `lock`, which Block took.
  bool AwaitBlocked();
  bool Await(const std::function<bool()>& condition, Millis at_most = Millis(30'000));
  bool AwaitLog(const testing::Process& process, const std::string& text);
  int64_t Count(const std::string& sql) { return database.QueryInt(sql); }

  // Every write to the read model waits until Unblock.
  void Block();
  void Unblock();

  // What the subscription still has for a consumer that comes now.
  std::vector<std::string> LeftOver();

  testing::TestDatabase database;
  std::string project = "p", topic = kTopic, subscription = kSubscription;
  emulator::Server server;
  std::unique_ptr<pubsub::Transport> transport;
  std::string folder;

 private:
  void WriteFiles() const;

  std::unique_ptr<pubsub::Publisher> publisher_;
  std::unique_ptr<postgres::Connection> blocker_;
};

}  // namespace lockstep::runner
