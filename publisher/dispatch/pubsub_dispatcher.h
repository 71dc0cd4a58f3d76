#pragma once

#include <map>
#include <memory>
#include <string>

#include "publisher/dispatch/dispatcher.h"
#include "pubsub/publisher.h"

namespace lockstep::publisher {

// Which Pub/Sub topic a logical one goes to.
class TopicMap {
 public:
  TopicMap(std::string project, std::map<std::string, std::string> topics);

  // The full name. A logical topic that the configuration does not name goes to the Pub/Sub topic
  // of its own name.
  std::string FullName(const std::string& logical) const;

 private:
  std::string project_;
  std::map<std::string, std::string> topics_;
};

// Hands rows to Pub/Sub. A row that can't be a message fails by itself; the rest of its batch, but
// for what stands behind it in its key, is sent. Safe from any thread.
class PubsubDispatcher : public Dispatcher {
 public:
  // By outbox, for each has a timeout of its own. REQUIRES: one for each that Dispatch will name.
  using Publishers = std::map<std::string, std::unique_ptr<pubsub::Publisher>>;

  PubsubDispatcher(Publishers publishers, TopicMap topics);

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;
  void SetMaxRequests(const std::string& table, int requests) override {
    publishers_.at(table)->SetMaxRequests(requests);
  }

 private:
  const TopicMap topics_;
  const Publishers publishers_;
};

}  // namespace lockstep::publisher
