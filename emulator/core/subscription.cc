#include "emulator/core/subscription.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "emulator/core/subscription_config.h"
#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {

Subscription::Subscription(Proto config, std::optional<Filter> filter, uint32_t number,
                           uint64_t first_sequence, Millis topic_retention, Timekeeper* timekeeper,
                           SubscriptionOffice* office)
    : number_(number),
      filter_(std::move(filter)),
      timekeeper_(timekeeper),
      office_(office),
      clock_(timekeeper->clock()),
      config_(std::move(config)),
      topic_retention_(topic_retention),
      queue_(
          PolicyOf(config_, topic_retention_), first_sequence,
          // Called with mu_ held, by the queue.
          [this] { return office_->CanForward(config_.dead_letter_policy().dead_letter_topic()); }),
      last_active_(clock_.Steady()) {}

Subscription::Proto Subscription::Config() const {
  std::scoped_lock lock(mu_);
  return config_;
}

void Subscription::SetConfig(const Proto& config) {
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

bool Subscription::Wanted(const Message& message) const {
  if (!filter_) return true;
  google::pubsub::v1::PubsubMessage parsed;
  return parsed.ParseFromString(message.wire) && filter_->Matches(parsed);
}

void Subscription::Append(const std::vector<MessagePtr>& messages, Wakes* wakes) {
  Lock lock(mu_);
  if (!closed_.ok()) return;
  for (const MessagePtr& message : messages) queue_.Append(message, Wanted(*message));
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

Subscription::Properties Subscription::GetProperties() const {
  Lock lock(mu_);
  return {config_.enable_exactly_once_delivery(), config_.enable_message_ordering()};
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

std::vector<Subscription::ParsedAck> Subscription::Parse(const AckIds& ids,
                                                         AckReport* report) const {
  std::vector<ParsedAck> parsed;
  parsed.reserve(static_cast<size_t>(ids.size()));
  size_t index = 0;
  for (const std::string& text : ids) {
    const auto id = AckId::Parse(text);
    if (id && id->subscription == number_) {
      parsed.push_back({*id, &text, index});
    } else {
      Record(AckOutcome::kInvalid, text, report);
    }
    ++index;
  }
  return parsed;
}

void Subscription::Record(AckOutcome outcome, const std::string& id, AckReport* report) const {
  if (!report->exactly_once) return;
  switch (outcome) {
    case AckOutcome::kDone:
      return report->done.push_back(id);
    case AckOutcome::kInvalid:
      return report->invalid.push_back(id);
    case AckOutcome::kUnordered:
      return report->unordered.push_back(id);
  }
}

absl::StatusOr<AckReport> Subscription::Acknowledge(const AckIds& ids) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  AckReport report;
  report.exactly_once = config_.enable_exactly_once_delivery();
  auto parsed = Parse(ids, &report);
  if (report.exactly_once && config_.enable_message_ordering()) {
    // In one request, the order of the ids means nothing.
    std::sort(parsed.begin(), parsed.end(),
              [](const ParsedAck& a, const ParsedAck& b) { return a.id.sequence < b.id.sequence; });
  }
  for (const ParsedAck& ack : parsed) {
    Record(queue_.Acknowledge(ack.id.sequence, ack.id.lease), *ack.text, &report);
  }
  queue_.Tidy();
  last_active_ = clock_.Steady();
  Finish(std::move(lock));
  return report;
}

absl::StatusOr<AckReport> Subscription::ModifyAckDeadline(const AckIds& ids,
                                                          const std::vector<int>& seconds) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  AckReport report;
  report.exactly_once = config_.enable_exactly_once_delivery();
  const SteadyTime now = clock_.Steady();
  for (const ParsedAck& ack : Parse(ids, &report)) {
    const int length = seconds.size() == 1 ? seconds.front() : seconds[ack.index];
    const AckOutcome outcome = length == 0 ? queue_.Release(ack.id.sequence, ack.id.lease, now)
                                           : queue_.Extend(ack.id.sequence, ack.id.lease,
                                                           std::chrono::seconds(length), now);
    Record(outcome, *ack.text, &report);
  }
  queue_.Tidy();
  last_active_ = now;
  Finish(std::move(lock));
  return report;
}

absl::Status Subscription::SeekTo(WallTime time, const std::vector<MessagePtr>& refill) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  queue_.Replay(
      refill, [this](const Message& message) { return Wanted(message); },
      [time](const Message& message) { return message.publish_time >= time; });
  Finish(std::move(lock));
  return absl::OkStatus();
}

absl::Status Subscription::SeekTo(const AckSnapshot& snapshot,
                                  const std::vector<MessagePtr>& refill) {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  std::unordered_set<uint64_t> unacked;
  for (const MessagePtr& message : snapshot.unacked) unacked.insert(message->sequence);
  queue_.Replay(
      refill, [this](const Message& message) { return Wanted(message); },
      [&](const Message& message) {
        return message.sequence >= snapshot.end || unacked.count(message.sequence) > 0;
      });
  Finish(std::move(lock));
  return absl::OkStatus();
}

absl::StatusOr<AckSnapshot> Subscription::TakeSnapshot() const {
  Lock lock(mu_);
  if (!closed_.ok()) return closed_;
  return AckSnapshot{queue_.end(), queue_.Unacked()};
}

void Subscription::Close(absl::Status reason) {
  Wakes wakes;
  {
    Lock lock(mu_);
    closed_ = std::move(reason);
    queue_.Drop();
    queue_.CollectAll(&wakes);
  }
  for (const auto& wakeable : wakes) wakeable->Wake();
}

void Subscription::WakeAll() {
  Wakes wakes;
  {
    Lock lock(mu_);
    queue_.CollectAll(&wakes);
  }
  for (const auto& wakeable : wakes) wakeable->Wake();
}

void Subscription::StartTime() {
  Lock lock(mu_);
  Schedule();
}

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
  const Millis ttl = TimeToLiveOf(config_);
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
  Proto config;
  if (!letters.empty()) config = config_;
  const Millis ttl = TimeToLiveOf(config_);
  const bool expired = closed_.ok() && ttl > Millis(0) && open_consumers_ == 0 &&
                       last_active_ + ttl <= clock_.Steady();
  const std::string name = expired ? config_.name() : "";
  if (!expired) {
    if (open_consumers_ > 0) last_active_ = clock_.Steady();
    Schedule();
  }
  lock.unlock();
  if (!letters.empty()) {
    office_->Forward(config, config.dead_letter_policy().dead_letter_topic(), letters);
  }
  for (const auto& wakeable : wakes) wakeable->Wake();
  if (expired) office_->Expired(name);
}

}  // namespace lockstep::emulator
