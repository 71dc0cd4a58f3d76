#include "publisher/observe/relay_status.h"

#include <fmt/format.h>

#include "platform/log/masking.h"

namespace lockstep::publisher {

void RelayStatus::OnClaimed(const std::vector<OutboxRow>& rows) {
  const std::scoped_lock lock(mu_);
  for (const OutboxRow& row : rows) record_.topics.try_emplace(labels_.Of(row.topic));
}

void RelayStatus::OnRow(const RowEvent& event) {
  using Kind = RowEvent::Kind;
  const std::scoped_lock lock(mu_);
  if (event.kind == Kind::kPublished || event.kind == Kind::kKnown ||
      event.kind == Kind::kDedupHit) {
    TopicStatus& topic = record_.topics[labels_.Of(event.row.topic)];
    ++topic.published;
    ++record_.published;
    topic.last_publish = record_.last_publish = Clock::System().Now();
    if (event.kind != Kind::kDedupHit) topic.outage.clear();  // which went nowhere
  } else if (event.kind == Kind::kOutage) {
    record_.topics[labels_.Of(event.row.topic)].outage = event.error;
  } else if (event.kind == Kind::kUnblamed) {
    record_.topics[labels_.Of(event.row.topic)].outage = fmt::format(
        "event {} fails and no other of the topic has passed since ({}); if it is the event's own "
        "fault, lockstepctl outbox quarantine puts it aside",
        event.row.event_id.value(), UnlessMasked(event.error));
  }
}

void RelayStatus::OnShards(const std::vector<int>& held, int of) {
  const std::scoped_lock lock(mu_);
  record_.shards_held = static_cast<int>(held.size());
  record_.shards = of;
}

RelayRecord RelayStatus::Read() const {
  const std::scoped_lock lock(mu_);
  return record_;
}

}  // namespace lockstep::publisher
