#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "publisher/observe/topic_labels.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/relay/relay_events.h"
#include "publisher/routes/route_dispatcher.h"

namespace lockstep::publisher {

struct TopicStatus {
  std::string outage;  // why it is out of reach; empty when it is not
  int64_t published = 0;
  WallTime last_publish;            // the epoch of the clock = never
  std::vector<RouteStatus> routes;  // those of `topics`; none for a topic that it does not name
};

// What a relay did since it was started.
struct RelayRecord {
  int shards = 0;
  int shards_held = 0;
  int64_t published = 0;
  WallTime last_publish;
  std::map<std::string, TopicStatus> topics;  // by label
};

// An outbox as its relay and the database see it, for the status page. A copy: nothing in it moves.
struct TableStatus {
  std::string table;
  bool relayed = false;  // false = relay.enabled is off
  std::string fault;     // why rows do not flow; empty when they do
  RelayRecord relay;
  OutboxRecord record;  // what the database says
};

// Keeps a relay's record. Hears on the relay's thread; Read is for any.
class RelayStatus : public RelayEvents {
 public:
  explicit RelayStatus(TopicLabels labels = TopicLabels()) : labels_(std::move(labels)) {}

  void OnClaimed(const std::vector<OutboxRow>& rows) override;
  void OnRow(const RowEvent& event) override;
  void OnShards(const std::vector<int>& held, int of) override;

  RelayRecord Read() const;

 private:
  TopicLabels labels_;
  mutable std::mutex mu_;
  RelayRecord record_;
};

}  // namespace lockstep::publisher
