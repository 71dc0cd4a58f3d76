#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/service/server.h"
#include "platform/metrics.h"
#include "runner/group/group.h"
#include "runner/testing/test_group.h"
#include "tests/support/fake_clock.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {

// As GroupWorld, with the real transport and the emulator between: gRPC, streams, leases, acks that
// may be refused. The emulator lives on a clock of the test's, so that leases run out when told.
class WireWorld {
 public:
  explicit WireWorld(pubsub::Subscription shape = {.ordering = true});
  ~WireWorld();

  GroupOptions options;  // for groups made afterwards
  std::string url;       // of the database, as the groups see it

  std::unique_ptr<Group> NewGroup(const std::string& instance = "one");
  // In this order, each key's too.
  void Publish(const std::vector<TestEvent>& events);
  // Every lease of the streams runs out: what was not acked comes again, with its key's successors.
  void ExpireLeases() { clock.Advance(Millis(61'000)); }

  bool Await(const std::function<bool()>& condition);
  int64_t Count(const std::string& sql) { return database.QueryInt(sql); }
  // How often a version of an aggregate was applied after a later one, or twice: 0.
  int64_t Disorder();

  testing::FakeClock clock;
  testing::TestDatabase database;
  emulator::Server server;
  std::unique_ptr<pubsub::Transport> transport;
  MetricsRegistry metrics;

 private:
  std::vector<std::unique_ptr<GroupEnvironment>> environments_;
  std::unique_ptr<pubsub::Publisher> publisher_;
};

// `keys` aggregates (k0, k1, …) with so many versions each, round about.
std::vector<TestEvent> Events(int keys, int versions, bool ordered = true, int from_version = 1);

}  // namespace lockstep::runner
