#include "publisher/observe/relay_status.h"

#include <algorithm>

namespace lockstep::publisher {

TopicStatus& RelayStatus::Of(const std::string& topic) {
  TopicStatus& status = topics_[topic];
  if (status.topic.empty()) status.topic = topic;
  return status;
}

void RelayStatus::OnClaimed(const std::vector<OutboxRow>& rows) {
  const std::scoped_lock lock(mu_);
  for (const OutboxRow& row : rows) Of(row.topic);
}

void RelayStatus::OnRow(const RowEvent& event) {
  using Kind = RowEvent::Kind;
  const std::scoped_lock lock(mu_);
  if (event.kind == Kind::kPublished || event.kind == Kind::kDedupHit) {
    TopicStatus& topic = Of(event.row.topic);
    ++topic.published;
    topic.last_publish = Clock::System().Now();
    topic.outage.clear();
  } else if (event.kind == Kind::kOutage) {
    Of(event.row.topic).outage = event.error;
  }
}

void RelayStatus::OnShards(const std::vector<int>& held, int of) {
  const std::scoped_lock lock(mu_);
  held_ = static_cast<int>(held.size());
  shards_ = of;
}

void RelayStatus::Fill(TableStatus& status) const {
  const std::scoped_lock lock(mu_);
  status.shards = shards_;
  status.shards_held = held_;
  for (const auto& [name, topic] : topics_) {
    status.topics.push_back(topic);
    status.published += topic.published;
    status.last_publish = std::max(status.last_publish, topic.last_publish);
  }
}

}  // namespace lockstep::publisher
