#include "emulator/core/topic.h"

#include <algorithm>
#include <utility>

#include "emulator/wire/proto_time.h"
#include "platform/status.h"

namespace lockstep::emulator {

Topic::Topic(const pb::Topic& config, uint64_t number, std::atomic<uint64_t>* next_id,
             Journal* journal, const Clock& clock)
    : number_(number),
      next_id_(next_id),
      journal_(journal),
      clock_(clock),
      last_time_(clock.Now()) {
  SetConfig(config);
}

void Topic::Restore(uint64_t next_sequence, std::vector<MessagePtr> messages) {
  std::scoped_lock lock(mu_);
  next_sequence_ = next_sequence;
  if (!messages.empty()) last_time_ = std::max(last_time_, messages.back()->publish_time);
  kept_.assign(std::make_move_iterator(messages.begin()), std::make_move_iterator(messages.end()));
  Trim();
}

pb::Topic Topic::Config() const {
  std::scoped_lock lock(mu_);
  return config_;
}

void Topic::SetConfig(const pb::Topic& config) {
  std::scoped_lock lock(mu_);
  config_ = config;
  retention_ = FromProto(config.message_retention_duration());
  Trim();
  for (const auto& subscription : subscriptions_) subscription->SetTopicRetention(retention_);
}

std::optional<pb::SchemaSettings> Topic::Schema() const {
  std::scoped_lock lock(mu_);
  if (!config_.has_schema_settings()) return std::nullopt;
  return config_.schema_settings();
}

absl::StatusOr<std::vector<std::string>> Topic::Publish(
    std::vector<std::shared_ptr<Message>> messages, Subscription::Wakes* wakes) {
  std::vector<std::string> ids;
  ids.reserve(messages.size());
  std::vector<MessagePtr> published;
  published.reserve(messages.size());
  std::scoped_lock lock(mu_);
  // The service's clock is fine to the microsecond at best; and it never goes back on a topic.
  last_time_ =
      std::max(last_time_, WallTime(std::chrono::floor<std::chrono::microseconds>(clock_.Now())));
  uint64_t id = next_id_->fetch_add(messages.size());
  uint64_t sequence = next_sequence_;
  for (auto& message : messages) {
    Stamp(sequence++, id++, last_time_, message.get());
    ids.push_back(message->id);
    published.push_back(std::move(message));
  }
  RETURN_IF_ERROR(Keep(published));
  next_sequence_ = sequence;
  if (retention_ > Millis(0) || !holds_.empty()) {
    kept_.insert(kept_.end(), published.begin(), published.end());
  }
  Trim();
  for (const auto& subscription : subscriptions_) subscription->Append(published, wakes);
  return ids;
}

absl::Status Topic::Keep(const std::vector<MessagePtr>& messages) {
  if (journal_ == nullptr) return absl::OkStatus();
  std::vector<Owed> owed;
  for (const auto& subscription : subscriptions_) {
    for (const MessagePtr& message : messages) {
      if (!subscription->Wants(*message)) continue;
      owed.push_back({subscription->name(), message->sequence});
    }
  }
  return journal_->Published(number_, messages, owed);
}

std::shared_ptr<Subscription> Topic::Attach(const Make& make) {
  std::scoped_lock lock(mu_);
  auto added = make(next_sequence_);
  added->SetTopicRetention(retention_);
  return subscriptions_.emplace_back(std::move(added));
}

void Topic::Detach(const Subscription* subscription) {
  std::scoped_lock lock(mu_);
  std::erase_if(subscriptions_, [=](const auto& each) { return each.get() == subscription; });
}

std::vector<std::shared_ptr<Subscription>> Topic::Subscriptions() const {
  std::scoped_lock lock(mu_);
  return subscriptions_;
}

std::vector<MessagePtr> Topic::Retained(WallTime from) {
  std::scoped_lock lock(mu_);
  const auto too_old = [this, from](const MessagePtr& each) {
    return each->publish_time < from || !IsRetained(*each);
  };
  return {std::partition_point(kept_.begin(), kept_.end(), too_old), kept_.end()};
}

std::vector<MessagePtr> Topic::Kept(uint64_t first_sequence) {
  std::scoped_lock lock(mu_);
  const auto too_old = [=](const MessagePtr& each) { return each->sequence < first_sequence; };
  return {std::partition_point(kept_.begin(), kept_.end(), too_old), kept_.end()};
}

bool Topic::IsRetained(const Message& message) const {
  return retention_ > Millis(0) && message.publish_time > clock_.Now() - retention_;
}

uint64_t Topic::Hold() {
  std::scoped_lock lock(mu_);
  holds_.insert(next_sequence_);
  return next_sequence_;
}

void Topic::HoldFrom(uint64_t sequence) {
  std::scoped_lock lock(mu_);
  holds_.insert(sequence);
}

void Topic::Release(uint64_t hold) {
  std::scoped_lock lock(mu_);
  if (const auto it = holds_.find(hold); it != holds_.end()) holds_.erase(it);
  Trim();
}

void Topic::Trim() {
  while (!kept_.empty()) {
    const Message& front = *kept_.front();
    const bool held = !holds_.empty() && front.sequence >= *holds_.begin();
    if (held || IsRetained(front)) return;
    kept_.pop_front();
  }
}

}  // namespace lockstep::emulator
