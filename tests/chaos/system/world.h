#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pubsub/transport.h"
#include "tests/chaos/system/cluster.h"
#include "tests/chaos/system/fleet.h"
#include "tests/chaos/system/gate.h"
#include "tests/chaos/system/pair.h"
#include "tests/chaos/system/witness.h"

namespace lockstep::chaos {

// A consumer group of the run. `feed` is the one whose offsets are reset; `steady` is left alone,
// so that no replay can cover up a loss; `latest` has a subscription without order, where the
// version guard alone keeps the newest. `called` has an HTTP handler beside its tables, and is
// reset; so is `versions`, which knows events again by their versions, and counts nothing.
struct GroupUnderTest {
  std::string name;
  bool ordered = true;
  bool called = false;
  bool by_versions = false;
};
const std::vector<GroupUnderTest>& Groups();

struct WorldOptions {
  std::string folder;  // for everything; absolute
  std::string bin;     // with our programs
  uint64_t seed = 1;
};

// Everything under attack, set up as an operator would: a Postgres server for the source, two for
// the consumer, the emulator, publishers and runners, and a gate between each two that talk. Of the
// main thread.
class World {
 public:
  explicit World(WorldOptions options);

  Cluster& source_server() { return source_server_; }
  Pair& feed_servers() { return feed_servers_; }
  Cluster& ServerOf(std::string_view database) {
    return database == "feed" ? feed_servers_.primary() : source_server_;
  }
  Fleet& publishers() { return *publishers_; }
  Fleet& runners() { return *runners_; }
  Child& emulator() { return *emulator_; }
  Child& consumer() { return *consumer_; }  // of the HTTP handler
  Gate& publisher_database() { return *publisher_database_; }
  Gate& runner_database() { return *runner_database_; }
  Gate& publisher_bus() { return *publisher_bus_; }
  Gate& runner_bus() { return *runner_bus_; }
  pubsub::Admin& admin() { return transport_->admin(); }

  std::string source_url() const { return source_server_.Url("shop"); }
  std::string feed_url() const;  // of whoever is the primary

  // lockstepctl, under way. `log` and `output` are names in the run's folder.
  struct Files {
    std::string log;
    std::string output;  // stdout; empty = with the rest, in the log
  };
  std::unique_ptr<Child> Control(std::vector<std::string> arguments, const Files& files) const;
  // lockstepctl verify --deep … of a group.
  std::unique_ptr<Child> BeginVerify(const std::string& group, std::vector<std::string> arguments,
                                     const Files& files) const;
  // The file of backfill `number`, whose messages have that schema version.
  std::string WriteDeclaration(int number) const;
  // lockstepctl offsets reset …, under way.
  std::unique_ptr<Child> BeginReset(const std::string& group,
                                    std::vector<std::string> target) const;
  // How the HTTP consumer behaves from now on (HttpConsumerOptions::mood_file).
  void SetMood(const std::string& mood) const;
  // Pub/Sub answers every Publish with this code ("INTERNAL"), until it is empty.
  void RefusePublish(const std::string& code);
  // Whether a failover of the consumer's database can be healed: the standby follows, and it knows
  // a checkpoint of every group.
  bool ReadyForFailover();
  void Tick();
  // Ends every attack that lasts.
  void Calm();

  // All that Pub/Sub was given, in its order: at least `events` different events, unless they are
  // not there. Once.
  std::vector<Witnessed> ReadWitness(size_t events);

  // Tables of both databases, subscriptions and snapshots: what a run must leave as it was.
  std::set<std::string> Inventory();

  static constexpr char kOutbox[] = "shop.outbox";
  static constexpr char kTopic[] = "chaos.item.changed.v1";
  static constexpr char kCalled[] = "called";
  static constexpr char kVersions[] = "versions";
  static constexpr char kCalls[] = "calls.tsv";  // the HTTP consumer's ledger
  // So many events can be answered yes in one runner and not be committed.
  static constexpr int kInHand = 2 * 50;  // lanes, max_batch
  static constexpr char kBackfill[] = "items";
  static constexpr Millis kClockSwing{20'000};
  // Groups that are compared with the source during the storm. Not one that is reset: after a reset
  // to a time, a snapshot from before it may be left out till the next backfill, and the ledger
  // does not know of snapshots.
  static constexpr const char* kInspected[] = {"steady", "latest"};
  // Of verify: more than the ack deadline, after which what a dead runner held comes again, and
  // than what Pub/Sub's clock is off.
  static constexpr char kGrace[] = "25s";

  std::string File(const std::string& name) const { return options_.folder + "/" + name; }

 private:
  void StartEmulator();
  void StartConsumer();
  void WriteFaults(const std::string& refuse_publish) const;
  void MakeDatabases();
  void Provision();
  void WriteConfigurations();
  void WriteFile(const std::string& name, const std::string& text) const;
  Child::Command Program(const std::string& name, std::vector<std::string> arguments) const;
  void MustRun(const std::string& name, std::vector<std::string> arguments) const;

  const WorldOptions options_;
  Cluster source_server_;
  Pair feed_servers_;
  std::unique_ptr<Child> emulator_;
  std::unique_ptr<Child> consumer_;
  int bus_port_ = 0, consumer_port_ = 0;
  std::unique_ptr<Gate> publisher_database_, runner_database_, publisher_bus_, runner_bus_;
  std::unique_ptr<Gate> operator_database_;  // is left alone
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<Fleet> publishers_, runners_;
};

}  // namespace lockstep::chaos
