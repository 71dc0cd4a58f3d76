#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/daemon/service.h"
#include "platform/metrics.h"
#include "publisher/dispatch/dispatcher.h"
#include "publisher/options/options.h"

namespace lockstep::pubsub {
class Admin;
class Publisher;
class Transport;
}  // namespace lockstep::pubsub

// A publisher in a process of one's own. Public: docs/embedding.md.
namespace lockstep::publisher {

class OutboxWatch;
class Relay;
struct TableStatus;

// A whole publisher: relays for the configured outboxes, the owner of their shards, housekeeping,
// heartbeats. lockstep-publisher is this plus an HTTP endpoint; a C++ service may run it in its own
// process (examples/embedded_publisher).
//
//   publisher::InProcessBus bus;  // or OpenPubsubDispatcher(…)
//   publisher::PublisherService service(config, bus, registry);
//   service.Start();
//
// Start answers with a sentence when a table is missing or a pooler is in the way; a database that
// can't be reached yet is waited for. Stop finishes what is under way. Safe from any thread.
class PublisherService : public Service {
 public:
  // `dispatcher` is the bus: it gets what no other route of `topics` takes (docs/routes.md). Both
  // outlive it.
  PublisherService(PublisherConfig config, Dispatcher& dispatcher, MetricsRegistry& metrics);
  ~PublisherService() override;

  // The dispatcher of the route `custom:<name>`. REQUIRES: before Start; outlives this.
  void AddRoute(const std::string& name, Dispatcher& dispatcher);

  // Sends heartbeats by it, if the configuration wants any; `admin` is asked which topics have a
  // schema. REQUIRES: before Start; both outlive this.
  void SetHeartbeat(pubsub::Publisher& publisher, pubsub::Admin& admin,
                    std::function<std::string(const std::string&)> topic);

  // Works on backfills by it, if the configuration lets it; the same `topic`, empty = it goes
  // nowhere. REQUIRES: as above; and nobody else publishes by `publisher`.
  void SetBackfill(pubsub::Publisher& publisher,
                   std::function<std::string(const std::string&)> topic);

  absl::Status Start() override;
  void Stop() override;

  // The configuration was read again (SIGHUP): relays follow what they can, the cleaner too.
  void Reload(const PublisherConfig& fresh);

  // What Start checks, the database's presence included.
  absl::Status Check() const;

  // Waits until every outbox is drained: all that may go has gone. Says why not when rows are left
  // because the bus or the database is out of reach, or because they failed and wait for a retry.
  // REQUIRES: started.
  absl::Status WaitUntilDrained();
  // Whoever waits for that is let go, now and later. Does not wait itself.
  void GiveUpDraining();

  // One sentence per reason why rows do not flow that has lasted for a while
  // (publisher/observe/readiness.h); none = ready. From any thread.
  std::vector<std::string> NotReady() const;

  // Whether every relay's loop makes its turns, but for those that know what is in their way: one
  // that has not for relay.watchdog hangs, for a statement is given up sooner. From any thread.
  bool Alive() const;

  // The configured outboxes as they stand, for the status page.
  std::vector<TableStatus> Tables() const;

  OutboxWatch& outboxes();

  const PublisherConfig& config() const { return config_; }

 private:
  struct Table;
  std::vector<Relay*> Relays() const;

  PublisherConfig config_;
  MetricsRegistry& metrics_;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// For a publisher whose routes all go elsewhere: refuses every row.
class NoBus : public Dispatcher {
 public:
  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;
};

// Pub/Sub as the dispatcher, with the topics of `config`. `settings` are those of
// lockstep-publisher's section `pubsub`, such as {{"pubsub.project", "shop"}}; the environment
// counts as there, PUBSUB_EMULATOR_HOST included.
absl::StatusOr<std::shared_ptr<Dispatcher>> OpenPubsubDispatcher(
    const std::map<std::string, std::string>& settings, const PublisherConfig& config);

// The same over a connection that outlives it.
std::unique_ptr<Dispatcher> MakePubsubDispatcher(pubsub::Transport& transport,
                                                 const std::string& project,
                                                 const PublisherConfig& config);

}  // namespace lockstep::publisher
