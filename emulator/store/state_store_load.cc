// StateStore: what an emulator that begins finds.
#include <map>
#include <utility>

#include "emulator/store/state_store.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

template <typename Proto>
absl::Status Parse(const std::string& bytes, Proto* proto) {
  if (proto->ParseFromString(bytes)) return absl::OkStatus();
  return FailedPrecondition("the state holds a {} that can't be read", proto->GetTypeName());
}

}  // namespace

absl::StatusOr<SavedState> StateStore::Load() {
  std::scoped_lock lock(mu_);
  SavedState state;
  ASSIGN_OR_RETURN(auto* schemas,
                   database_->Prepare("SELECT revision FROM schemas ORDER BY name, place"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, schemas->Next());
    if (!more) break;
    RETURN_IF_ERROR(Parse(schemas->Bytes(0), &state.schemas.emplace_back()));
  }
  RETURN_IF_ERROR(LoadTopics(&state));
  RETURN_IF_ERROR(LoadSubscriptions(&state));
  RETURN_IF_ERROR(LoadSnapshots(&state));
  return state;
}

absl::Status StateStore::LoadTopics(SavedState* state) {
  std::map<uint64_t, size_t> places;
  ASSIGN_OR_RETURN(auto* topics, database_->Prepare("SELECT number, config, deleted, next_sequence "
                                                    "FROM topics ORDER BY number"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, topics->Next());
    if (!more) break;
    places[topics->Number(0)] = state->topics.size();
    auto& topic = state->topics.emplace_back();
    topic.number = topics->Number(0);
    RETURN_IF_ERROR(Parse(topics->Bytes(1), &topic.config));
    topic.deleted = topics->Number(2) != 0;
    topic.next_sequence = topics->Number(3);
  }
  ASSIGN_OR_RETURN(auto* messages,
                   database_->Prepare("SELECT topic, sequence, id, published, ordering_key, wire "
                                      "FROM messages ORDER BY topic, sequence"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, messages->Next());
    if (!more) break;
    const auto place = places.find(messages->Number(0));
    if (place == places.end()) continue;
    auto message = std::make_shared<Message>();
    message->sequence = messages->Number(1);
    message->id = messages->Bytes(2);
    message->publish_time =
        WallTime(std::chrono::microseconds(static_cast<int64_t>(messages->Number(3))));
    message->ordering_key = messages->Bytes(4);
    message->wire = messages->Bytes(5);
    state->topics[place->second].messages.push_back(std::move(message));
  }
  return absl::OkStatus();
}

absl::Status StateStore::LoadSubscriptions(SavedState* state) {
  std::map<uint64_t, size_t> places;
  ASSIGN_OR_RETURN(
      auto* subscriptions,
      database_->Prepare("SELECT id, config, topic, first_sequence FROM subscriptions"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, subscriptions->Next());
    if (!more) break;
    places[subscriptions->Number(0)] = state->subscriptions.size();
    auto& subscription = state->subscriptions.emplace_back();
    RETURN_IF_ERROR(Parse(subscriptions->Bytes(1), &subscription.config));
    subscription.topic = subscriptions->Number(2);
    subscription.first_sequence = subscriptions->Number(3);
  }
  ASSIGN_OR_RETURN(auto* unacked, database_->Prepare("SELECT subscription, sequence FROM unacked"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, unacked->Next());
    if (!more) break;
    state->subscriptions[places.at(unacked->Number(0))].unacked.insert(unacked->Number(1));
  }
  return absl::OkStatus();
}

absl::Status StateStore::LoadSnapshots(SavedState* state) {
  std::map<std::string, size_t> places;
  ASSIGN_OR_RETURN(auto* snapshots,
                   database_->Prepare("SELECT name, config, topic, \"end\" FROM snapshots"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, snapshots->Next());
    if (!more) break;
    places[snapshots->Bytes(0)] = state->snapshots.size();
    auto& snapshot = state->snapshots.emplace_back();
    RETURN_IF_ERROR(Parse(snapshots->Bytes(1), &snapshot.config));
    snapshot.topic = snapshots->Number(2);
    snapshot.end = snapshots->Number(3);
  }
  ASSIGN_OR_RETURN(auto* unacked,
                   database_->Prepare("SELECT snapshot, sequence FROM snapshot_unacked"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, unacked->Next());
    if (!more) break;
    state->snapshots[places.at(unacked->Bytes(0))].unacked.insert(unacked->Number(1));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
