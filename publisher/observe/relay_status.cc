#include "publisher/observe/relay_status.h"

#include <algorithm>

#include "platform/status.h"

namespace lockstep::publisher {

void RelayStatus::OnClaimed(const std::vector<OutboxRow>& rows) {
  const std::scoped_lock lock(mu_);
  for (const OutboxRow& row : rows) topics_.try_emplace(row.topic);
}

void RelayStatus::OnPublished(const OutboxRow& row, Millis) {
  const WallTime now = Clock::System().Now();
  const std::scoped_lock lock(mu_);
  TopicStatus& topic = topics_[row.topic];
  ++topic.published;
  topic.last_publish = now;
  topic.outage.clear();
}

void RelayStatus::OnOutage(const OutboxRow& row, std::string_view, const absl::Status& why,
                           Millis) {
  const std::scoped_lock lock(mu_);
  topics_[row.topic].outage = MessageOf(why);
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
    status.topics.back().topic = name;
    status.published += topic.published;
    status.last_publish = std::max(status.last_publish, topic.last_publish);
  }
}

}  // namespace lockstep::publisher
