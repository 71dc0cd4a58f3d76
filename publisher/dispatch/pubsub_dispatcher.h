#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "publisher/dispatch/dispatcher.h"
#include "publisher/dispatch/route.h"
#include "pubsub/publisher.h"

namespace lockstep::publisher {

// The full name of the Pub/Sub topic that a logical one goes to; empty = to none. Safe from any
// thread.
using TopicNames = std::function<std::string(const std::string& logical)>;

// A logical topic that `topics` names goes where its route to the bus leads, if it has one. Another
// goes nowhere, or with `any` to the Pub/Sub topic of its own name: writers name topics, and the
// publisher's rights may reach further than theirs.
TopicNames MapTopics(std::string project, const Topics& topics, bool any);

// Hands rows to Pub/Sub. Rows whose topic goes nowhere are refused. A row that can't be a message
// fails by itself; the rest of its batch, but for what stands behind it in its key, is sent. Safe
// from any thread.
class PubsubDispatcher : public Dispatcher {
 public:
  // By outbox, for each has a timeout of its own. REQUIRES: one for each that Dispatch will name.
  using Publishers = std::map<std::string, std::unique_ptr<pubsub::Publisher>>;

  PubsubDispatcher(Publishers publishers, TopicNames topics)
      : topics_(std::move(topics)), publishers_(std::move(publishers)) {}

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;
  void SetMaxRequests(const std::string& table, int requests) override {
    publishers_.at(table)->SetMaxRequests(requests);
  }

 private:
  const TopicNames topics_;
  const Publishers publishers_;
};

}  // namespace lockstep::publisher
