#include <map>
#include <utility>

#include "emulator/core/broker.h"

namespace lockstep::emulator {
namespace {

// Those of the topic that `wanted` names, in order.
template <typename Wanted>
std::vector<MessagePtr> Select(const std::vector<MessagePtr>& messages, const Wanted& wanted) {
  std::vector<MessagePtr> selected;
  for (const MessagePtr& message : messages) {
    if (wanted(*message)) selected.push_back(message);
  }
  return selected;
}

}  // namespace

absl::Status Broker::Restore(SavedState saved) {
  struct Known {
    std::shared_ptr<Topic> topic;
    const SavedState::SavedTopic* saved;
  };
  std::map<uint64_t, Known> known;
  for (const auto& each : saved.topics) {
    auto topic =
        std::make_shared<Topic>(each.config, each.number, &next_message_id_, journal_, clock_);
    known[each.number] = {topic, &each};
    next_topic_ = std::max(next_topic_, each.number + 1);
    // A clock that was set back must not give an id twice.
    for (const MessagePtr& message : each.messages) {
      next_message_id_ = std::max<uint64_t>(next_message_id_, std::stoull(message->id) + 1);
    }
    if (!each.deleted) topics_[each.config.name()] = topic;
  }
  for (const auto& each : saved.snapshots) {
    const auto& [topic, from] = known.at(each.topic);
    topic->HoldFrom(each.end);
    KeptSnapshot snapshot{each.config, topic, each.end, {.end = each.end, .unacked = {}}};
    if (from->deleted) snapshot.proto.set_topic(kDeletedTopic);
    snapshot.state.unacked = Select(from->messages, [&](const Message& message) {
      return each.unacked.contains(message.sequence);
    });
    snapshots_[each.config.name()] = std::make_shared<KeptSnapshot>(std::move(snapshot));
  }
  // After the holds, which say what the topics keep.
  for (const auto& [number, each] : known) {
    each.topic->Restore(each.saved->next_sequence, each.saved->messages);
  }
  for (const auto& each : saved.subscriptions) {
    const auto& [topic, from] = known.at(each.topic);
    pb::Subscription config = each.config;
    if (from->deleted) config.set_topic(kDeletedTopic);
    std::optional<Filter> filter;
    if (!config.filter().empty()) {
      ASSIGN_OR_RETURN(filter, Filter::Parse(config.filter()));
    }
    const auto subscription = topic->Attach([&](uint64_t first_sequence) {
      return std::make_shared<Subscription>(config, filter, next_subscription_++, first_sequence,
                                            timekeeper_, this);
    });
    subscriptions_[config.name()] = {subscription, topic};
    const auto unacked = [&](const Message& message) {
      return each.unacked.contains(message.sequence);
    };
    subscription->Restore(Select(from->messages,
                                 [&](const Message& message) {
                                   const bool retained = config.retain_acked_messages() &&
                                                         message.sequence >= each.first_sequence;
                                   return retained || unacked(message);
                                 }),
                          unacked);
    if (from->deleted || config.detached()) topic->Detach(subscription.get());
    if (config.detached()) {
      subscription->Close(FailedPrecondition(
          "The subscription is detached from its topic (resource={}).", config.name()));
    }
  }
  for (const auto& [name, snapshot] : snapshots_) ExpireSnapshot(*snapshot);
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
