#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

struct TopicStatus {
  std::string topic;
  std::string outage;  // why it is out of reach; empty when it is not
  int64_t published = 0;
  WallTime last_publish;  // the epoch of the clock = never
};

// An outbox as its relay and the database see it, for the status page. A copy: nothing in it moves.
struct TableStatus {
  std::string table;
  bool relayed = false;  // false = relay.enabled is off
  std::string fault;     // why rows do not flow; empty when they do
  int shards = 0;
  int shards_held = 0;
  int64_t published = 0;
  WallTime last_publish;
  std::vector<TopicStatus> topics;
  OutboxRecord record;  // what the database says
};

// Remembers what a relay did last. Hears on the relay's thread; Fill is for any.
class RelayStatus : public RelayEvents {
 public:
  void OnClaimed(const std::vector<OutboxRow>& rows) override;
  void OnRow(const RowEvent& event) override;
  void OnShards(const std::vector<int>& held, int of) override;

  void Fill(TableStatus& status) const;

 private:
  TopicStatus& Of(const std::string& topic);

  mutable std::mutex mu_;
  std::map<std::string, TopicStatus> topics_;
  int shards_ = 0;
  int held_ = 0;
};

}  // namespace lockstep::publisher
