#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/http_client/client.h"
#include "platform/metrics.h"
#include "publisher/dispatch/dispatcher.h"
#include "publisher/dispatch/route.h"
#include "publisher/options/options.h"

namespace lockstep::publisher {

// A route of a topic, for the status page.
struct RouteStatus {
  std::string route;
  int64_t taken = 0;    // rows, since the start
  std::string outage;   // why it is out of reach; empty when it is not
  WallTime last_taken;  // the epoch of the clock = never
};

// Sends the rows of a topic by its routes (docs/routes.md): to the bus, to URLs, to dispatchers of
// the program's own. A row passes when all of them have it; one that some have and others have not
// fails, with those that have it in `taken_by`, which its next try leaves out. Routes that the
// configuration no longer names don't count.
//
// A topic without a row in `topics` goes to the bus, which knows what it takes. Safe from any
// thread once it was opened.
class RouteDispatcher : public Dispatcher {
 public:
  // `bus` outlives it.
  RouteDispatcher(const PublisherConfig& config, Dispatcher& bus, MetricsRegistry& metrics);
  ~RouteDispatcher() override;

  // The dispatcher of `custom:<name>`; outlives this. REQUIRES: before Open.
  void Add(const std::string& name, Dispatcher& dispatcher) { custom_[name] = &dispatcher; }

  // Reads the files of the routes. Fails with a sentence about the first that can't be used. Called
  // a second time it does nothing.
  absl::Status Open();

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;
  RequestShape Shape(const std::string& topic) const override;
  void SetMaxRequests(const std::string& table, int requests) override;

  std::vector<RouteStatus> Status(const std::string& topic) const;

 private:
  struct Target;
  struct Sending;

  absl::StatusOr<Dispatcher*> Find(const Route& route);
  static void Send(Target& target, const std::string& table, const std::string& topic,
                   std::vector<RowPtr> rows, Done done);

  const Topics topics_;
  const RouteOptions options_;
  std::vector<std::string> tables_;
  Dispatcher& bus_;
  MetricsRegistry& metrics_;
  std::map<std::string, Dispatcher*> custom_;
  // From here on, of Open: never changed after it.
  bool open_ = false;
  std::map<std::string, std::unique_ptr<Dispatcher>> http_;              // by URL
  std::map<std::string, std::vector<std::shared_ptr<Target>>> targets_;  // by logical topic
  std::unique_ptr<http::Client> client_;  // last: it ends first, with all that is under way
};

}  // namespace lockstep::publisher
