#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "publisher/options/options.h"
#include "publisher/outbox/shard_locks.h"
#include "publisher/relay/relay.h"

namespace lockstep::publisher {

// Holds the shards of all relays of a process, as advisory locks of one session, and shares them
// out among the publishers at hand: every ceil(shards/publishers), found by counting the holders of
// a member lock. Shards only spare contention; what keeps order is the claim rule and the leases.
//
// A stopped process loses its shards because the server ends a session that is not pinged
// (session_timeout); a process whose relay hangs gives them up here (watchdog). A shard is given
// to another only when nothing of it is in hand any more.
//
// A thread of its own. Stop lets go of everything: stop the relays first.
class ShardOwner : public Service {
 public:
  // The relays outlive it.
  ShardOwner(OwnershipOptions options, std::string database, std::vector<Relay*> relays,
             const Clock& clock = Clock::System());

  absl::Status Start() override {
    return thread_.Start([this] { Run(); });
  }
  void Stop() override { thread_.Stop(); }

  // OK while the session stands; else why not.
  absl::Status health() const;
  // A session that is no publisher and keeps a shard of the table from all of them, in words; empty
  // when there is none.
  std::string Stranger(const std::string& table) const;

 private:
  struct Table {
    Relay* relay = nullptr;
    int64_t oid = 0;
    int count = 0;  // of its shards, as stored
    bool member = false;
    std::vector<int> held;     // locked
    std::vector<int> leaving;  // locked still, no longer relayed
    int64_t change = 0;        // the relay's number for it
    std::string stranger;      // at the last look
  };

  void Run();
  absl::Status Connect();
  absl::Status Register(Table& table);
  absl::Status Round();
  absl::Status Balance(Table& table, const ShardLocks::View& view);
  absl::Status Acquire(Table& table, size_t wanted);
  void Notice(Table& table, const std::string& stranger);
  void LetGo(Table& table, size_t keep);
  absl::Status Abandon(Table& table);
  void Lose();
  bool AnyLeaving() const;

  const OwnershipOptions options_;
  const std::string database_;
  const Clock& clock_;
  std::vector<Table> tables_;
  std::unique_ptr<ShardLocks> locks_;  // null = no session
  SteadyTime last_look_;

  mutable std::mutex mu_;
  absl::Status health_;
  std::map<std::string, std::string> strangers_;  // by table

  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::publisher
