#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "publisher/options/options.h"
#include "publisher/relay/relay.h"
#include "pubsub/admin.h"
#include "pubsub/publisher.h"

namespace lockstep::publisher {

// Publishes a control message per topic and outbox every few seconds: the newest committed position
// of the outbox, so that a consumer can tell idle from stuck. Only the owner of shard 0 does, and
// only while it relays. A topic with a schema gets none: a consumer would take an empty message for
// an event. A thread of its own, with a connection; Stop does not wait for answers.
class Heartbeat : public Service {
 public:
  // Relays, publisher and admin outlive it. `topic` turns a logical name into Pub/Sub's.
  Heartbeat(HeartbeatOptions options, std::string database, std::vector<Relay*> relays,
            pubsub::Publisher& publisher, pubsub::Admin& admin,
            std::function<std::string(const std::string&)> topic);

  absl::Status Start() override { return ticker_.Start(); }
  void Stop() override { ticker_.Stop(); }

 private:
  // What is known of a topic's schema.
  struct Look {
    bool known = false;
    bool allowed = true;
    SteadyTime at;
  };

  absl::Status Beat();
  void Send(const std::string& topic, int64_t position);
  // Whether the topic may get one; asks Pub/Sub when that is not known, or was long ago.
  bool Allowed(const std::string& topic);

  const HeartbeatOptions options_;
  const std::string database_;
  const std::vector<Relay*> relays_;
  pubsub::Publisher& publisher_;
  pubsub::Admin& admin_;
  const std::function<std::string(const std::string&)> topic_;
  std::map<std::string, Look> looks_;  // of its thread, by logical topic
  Ticker ticker_;                      // last: its thread uses the rest
};

}  // namespace lockstep::publisher
