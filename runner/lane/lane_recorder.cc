#include "runner/lane/lane_recorder.h"

#include <chrono>
#include <utility>

#include "platform/status.h"
#include "runner/lane/lane_log.h"

namespace lockstep::runner {

void LaneRecorder::OnCommitted(std::span<Inbound* const> items, const BatchResult& result) {
  const WallTime now = Clock::System().Now();
  const auto took = Clock::System().Steady() - result.began;
  std::vector<pubsub::AckToken> tokens;
  tokens.reserve(items.size());
  const Inbound* newest = nullptr;
  for (size_t i = 0; i < items.size(); ++i) {
    Inbound& item = *items[i];
    LogFate(group_.options.name, item, result.fates[i]);
    tokens.push_back(std::exchange(item.token, {}));
    if (newest == nullptr || newest->publish_time < item.publish_time) newest = &item;
  }
  for (const auto& [item, fate] : result.unparked) LogFate(group_.options.name, *item, fate);
  acks_.Ack(std::move(tokens), result.commit_began);
  group_.metrics.Committed(items, result, now, std::chrono::duration<double>(took).count());
  {
    std::lock_guard lock(mu_);
    last_commit_ = now;  // of parked events that were released, too
    last_error_.clear();
    if (newest != nullptr) last_message_id_ = newest->message_id.value();
  }
  if (newest == nullptr) return;
  if (RestoreWitness* const witness = group_.offset_witness()) {
    witness->Committed(under_, lane_, {newest->publish_time, newest->message_id});
  }
  group_.metrics.OffsetSaved(true);
  const auto lag = std::chrono::duration_cast<Millis>(now - newest->publish_time);
  group_.metrics.OffsetLag(lag);
  LogOffsetSaved(group_.options.name, *newest, lag, group_.environment.instance);
}

void LaneRecorder::OnGivenBack(std::span<Inbound* const> items) {
  std::vector<pubsub::AckToken> tokens;
  for (Inbound* item : items) {
    if (item->poison) LogGivenBack(group_.options.name, *item);
    tokens.push_back(std::exchange(item->token, {}));
  }
  acks_.GiveBack(std::move(tokens));
}

void LaneRecorder::OnFailure(const absl::Status& status, std::span<Inbound* const> items) {
  group_.metrics.Failed();
  if (!items.empty()) group_.metrics.OffsetSaved(false);  // a release saves none
  if (state::IsStaleEpoch(status)) return;
  LogFailure(group_.options.name, lane_, status, items);
  std::lock_guard lock(mu_);
  last_error_ = MessageOf(status);
}

void LaneRecorder::Fill(LaneStatus& status) const {
  std::lock_guard lock(mu_);
  status.last_error = last_error_;
  status.last_commit = last_commit_;
  status.last_message_id = last_message_id_;
}

}  // namespace lockstep::runner
