#include "emulator/core/subscription.h"

#include <algorithm>

#include "emulator/core/broker.h"
#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {
namespace {

// What the topic keeps, its subscriptions may have: the longer retention counts, for unacked
// messages too.
DeliveryPolicy PolicyOf(const pb::Subscription& config, Millis topic_retention) {
  DeliveryPolicy policy;
  policy.ordered = config.enable_message_ordering();
  policy.exactly_once = config.enable_exactly_once_delivery();
  policy.retain_acked = config.retain_acked_messages();
  policy.retention = std::max(FromProto(config.message_retention_duration()), topic_retention);
  if (config.has_retry_policy()) {
    policy.min_backoff = FromProto(config.retry_policy().minimum_backoff());
    policy.max_backoff = FromProto(config.retry_policy().maximum_backoff());
  }
  if (config.has_dead_letter_policy()) {
    policy.max_attempts = config.dead_letter_policy().max_delivery_attempts();
  }
  return policy;
}

}  // namespace

void AckReport::Add(AckOutcome outcome, const std::string& id) {
  if (!exactly_once) return;
  switch (outcome) {
    case AckOutcome::kDone:
      return done.push_back(id);
    case AckOutcome::kInvalid:
      return invalid.push_back(id);
    case AckOutcome::kUnordered:
      return unordered.push_back(id);
  }
}

Subscription::Subscription(pb::Subscription config, std::optional<Filter> filter, uint32_t number,
                           uint64_t first_sequence, Timekeeper* timekeeper, Broker* broker)
    : name_(config.name()),
      number_(number),
      filter_(std::move(filter)),
      timekeeper_(timekeeper),
      broker_(broker),
      clock_(timekeeper->clock()),
      config_(std::move(config)),
      queue_(
          PolicyOf(config_, topic_retention_), first_sequence,
          // Called with mu_ held, by the queue.
          [this] { return broker_->CanForward(config_.dead_letter_policy().dead_letter_topic()); }),
      last_active_(clock_.Steady()) {}

pb::Subscription Subscription::Config() const {
  std::scoped_lock lock(mu_);
  return config_;
}

void Subscription::SetConfig(const pb::Subscription& config) {
  Lock lock(mu_);
  config_ = config;
  queue_.SetPolicy(PolicyOf(config_, topic_retention_));
  last_active_ = clock_.Steady();
  Finish(std::move(lock));
}

void Subscription::SetTopicRetention(Millis retention) {
  Lock lock(mu_);
  topic_retention_ = retention;
  queue_.SetPolicy(PolicyOf(config_, topic_retention_));
  Schedule();
}

bool Subscription::Wants(const Message& message) const {
  if (!filter_) return true;
  pb::PubsubMessage parsed;
  return parsed.ParseFromString(message.wire) && filter_->Matches(parsed);
}

void Subscription::Append(const std::vector<MessagePtr>& messages, Wakes* wakes) {
  Lock lock(mu_);
  if (!closed_.ok()) return;
  for (const MessagePtr& message : messages) queue_.Append(message, Wants(*message));
  queue_.CollectWakes(wakes);
  Schedule();
}

absl::StatusOr<Consumer*> Subscription::Attach(const ConsumerLimits& limits, std::string client_id,
                                               std::weak_ptr<Wakeable> wakeable) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  ++open_consumers_;
  return queue_.Attach(limits, std::move(client_id), std::move(wakeable));
}

void Subscription::Detach(Consumer* consumer) {
  Lock lock(mu_);
  --open_consumers_;
  last_active_ = clock_.Steady();
  queue_.Detach(consumer);
  Finish(std::move(lock));
}

void Subscription::SetAckDeadline(Consumer* consumer, Millis deadline) {
  Lock lock(mu_);
  consumer->limits.ack_deadline = deadline;
}

pb::StreamingPullResponse::SubscriptionProperties Subscription::Properties() const {
  Lock lock(mu_);
  pb::StreamingPullResponse::SubscriptionProperties properties;
  properties.set_exactly_once_delivery_enabled(config_.enable_exactly_once_delivery());
  properties.set_message_ordering_enabled(config_.enable_message_ordering());
  return properties;
}

std::pair<int64_t, int64_t> Subscription::OutstandingOf(const Consumer* consumer) const {
  Lock lock(mu_);
  return {consumer->messages, consumer->bytes};
}

absl::StatusOr<std::vector<Delivery>> Subscription::Take(Consumer* consumer, const Budget& budget) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  auto taken = queue_.Take(consumer, budget, clock_.Steady());
  Schedule();
  return taken;
}

absl::StatusOr<AckReport> Subscription::ForEach(
    const AckIds& ids, bool by_sequence, const std::function<AckOutcome(const ParsedAck&)>& apply,
    const std::function<absl::Status()>& keep) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  AckReport report;
  report.exactly_once = config_.enable_exactly_once_delivery();
  std::vector<ParsedAck> parsed;
  for (int i = 0; i < ids.size(); ++i) {
    const auto id = AckId::Parse(ids[i]);
    if (id && id->subscription == number_) {
      parsed.push_back({*id, static_cast<size_t>(i)});
    } else {
      report.Add(AckOutcome::kInvalid, ids[i]);
    }
  }
  if (by_sequence && report.exactly_once && config_.enable_message_ordering()) {
    std::sort(parsed.begin(), parsed.end(),
              [](const ParsedAck& a, const ParsedAck& b) { return a.id.sequence < b.id.sequence; });
  }
  for (const ParsedAck& ack : parsed) report.Add(apply(ack), ids[static_cast<int>(ack.index)]);
  queue_.Tidy();
  last_active_ = clock_.Steady();
  const absl::Status kept = keep();
  Finish(std::move(lock));
  if (!kept.ok()) return kept;
  return report;
}

absl::StatusOr<AckReport> Subscription::Acknowledge(const AckIds& ids, bool past_seek) {
  // In one request, the order of the ids means nothing.
  std::vector<uint64_t> acked;
  const auto keep = [this, &acked] { return broker_->KeepAcks(name_, acked); };
  return ForEach(
      ids, true,
      [&](const ParsedAck& ack) {
        const auto outcome = queue_.Acknowledge(ack.id.sequence, ack.id.lease, past_seek);
        if (outcome == AckOutcome::kDone) acked.push_back(ack.id.sequence);
        return outcome;
      },
      keep);
}

absl::StatusOr<AckReport> Subscription::ModifyAckDeadline(const AckIds& ids,
                                                          const std::vector<int>& seconds) {
  const SteadyTime now = clock_.Steady();
  return ForEach(
      ids, false,
      [&](const ParsedAck& ack) {
        const int length = seconds.size() == 1 ? seconds.front() : seconds[ack.index];
        return length == 0 ? queue_.Release(ack.id.sequence, ack.id.lease, now)
                           : queue_.Extend(ack.id.sequence, ack.id.lease,
                                           now + std::chrono::seconds(length));
      },
      [] { return absl::OkStatus(); });
}

absl::Status Subscription::Seek(const std::vector<MessagePtr>& refill,
                                const DeliveryQueue::Wanted& unacked) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  queue_.Replay(
      refill, [this](const Message& message) { return Wants(message); }, unacked);
  // Kept or not, it is sought: who is told of a failure seeks again.
  const absl::Status kept = broker_->KeepSeek(name_, [this] { return queue_.Unacked(); });
  Finish(std::move(lock));
  return kept;
}

void Subscription::Restore(const std::vector<MessagePtr>& messages,
                           const DeliveryQueue::Wanted& unacked) {
  Lock lock(mu_);
  queue_.Replay(
      messages, [this](const Message& message) { return Wants(message); }, unacked);
  Schedule();
}

absl::StatusOr<AckSnapshot> Subscription::TakeSnapshot() const {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  return AckSnapshot{queue_.end(), queue_.Unacked()};
}

void Subscription::Close(absl::Status reason) {
  {
    Lock lock(mu_);
    closed_ = std::move(reason);
    queue_.Drop();
  }
  WakeAll();
}

void Subscription::WakeAll() {
  Wakes wakes;
  {
    Lock lock(mu_);
    queue_.CollectAll(&wakes);
  }
  for (const auto& wakeable : wakes) wakeable->Wake();
}

Millis Subscription::TimeToLive() const { return FromProto(config_.expiration_policy().ttl()); }

void Subscription::Tick(SteadyTime scheduled) {
  Lock lock(mu_);
  if (scheduled_ != scheduled) return;  // an earlier one has taken its place
  scheduled_.reset();
  queue_.Advance(clock_.Steady(), clock_.Now());
  Finish(std::move(lock));
}

void Subscription::Schedule() {
  if (!closed_.ok()) return;
  auto due = queue_.NextDue(clock_.Steady(), clock_.Now());
  const Millis ttl = TimeToLive();
  if (ttl > Millis(0)) due = due ? std::min(*due, last_active_ + ttl) : last_active_ + ttl;
  if (!due || (scheduled_ && *scheduled_ <= *due)) return;
  scheduled_ = due;
  timekeeper_->At(*due, [weak = weak_from_this(), time = *due] {
    if (auto self = weak.lock()) self->Tick(time);
  });
}

void Subscription::Finish(Lock lock) {
  Wakes wakes;
  queue_.CollectWakes(&wakes);
  const std::vector<DeadLetter> letters = queue_.TakeDeadLetters();
  const Millis ttl = TimeToLive();
  const bool expired = closed_.ok() && ttl > Millis(0) && open_consumers_ == 0 &&
                       last_active_ + ttl <= clock_.Steady();
  const std::string dead_letter_topic =
      letters.empty() ? "" : config_.dead_letter_policy().dead_letter_topic();
  if (!expired) {
    if (open_consumers_ > 0) last_active_ = clock_.Steady();
    Schedule();
  }
  lock.unlock();
  if (!letters.empty()) broker_->Forward(name_, dead_letter_topic, letters);
  for (const auto& wakeable : wakes) wakeable->Wake();
  if (!expired) return;
  pb::DeleteSubscriptionRequest request;
  request.set_subscription(name_);
  (void)broker_->DeleteSubscription(request);
}

}  // namespace lockstep::emulator
