#include "tests/support/fake_bus.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/fake_bus_admin.h"
#include "tests/support/fake_bus_parts.h"

namespace lockstep::testing {

using pubsub::AckToken;
using pubsub::Delivery;

FakeBus::FakeBus() : admin_(std::make_unique<FakeBusAdmin>(*this)), thread_([this] { Run(); }) {}

FakeBus::~FakeBus() {
  {
    std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<pubsub::Publisher> FakeBus::NewPublisher(const pubsub::PublisherOptions&) {
  return std::make_unique<FakeBusPublisher>(*this);
}

std::unique_ptr<pubsub::Receiver> FakeBus::NewReceiver(const pubsub::ReceiverOptions& options,
                                                       pubsub::DeliverySink& sink) {
  return std::make_unique<FakeBusReceiver>(*this, options, sink);
}

pubsub::Admin& FakeBus::admin() { return *admin_; }

void FakeBus::Post(std::function<void()> task) {
  {
    std::scoped_lock lock(mu_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void FakeBus::Run() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
    DeliverLocked(lock);
    changed_.notify_all();
  }
}

// Hands over whatever may be handed over now: per receiver in one call, keys in order, a key's
// messages to one receiver at a time.
void FakeBus::DeliverLocked(std::unique_lock<std::mutex>& lock) {
  std::map<FakeBusReceiver*, std::vector<Delivery>> batches;
  size_t turn = 0;
  for (auto& [name, sub] : subscriptions_) {
    std::vector<FakeBusReceiver*> receivers;
    for (FakeBusReceiver* receiver : receivers_) {
      const bool mine = receiver->options_.subscription == name;
      if (mine && receiver->life_ == FakeBusReceiver::Life::kRunning) receivers.push_back(receiver);
    }
    if (receivers.empty()) continue;
    std::map<std::string, FakeBusReceiver*> holders;  // by key; null = the key waits
    for (Entry& entry : sub.entries) {
      if (entry.acked) continue;
      const std::string& key = entry.message->message.ordering_key;
      const bool ordered = sub.settings.ordering && !key.empty();
      if (!entry.token.empty()) {
        if (ordered) holders[key] = entry.holder;
        continue;
      }
      FakeBusReceiver* receiver = receivers[turn++ % receivers.size()];
      if (const auto held = holders.find(key); ordered && held != holders.end()) {
        receiver = held->second;
      }
      const bool can = receiver != nullptr && receiver->HasRoom() &&
                       receiver->life_ == FakeBusReceiver::Life::kRunning;
      if (ordered) holders[key] = can ? receiver : nullptr;
      if (!can) continue;
      entry.token = fmt::format("{}#{}", entry.message->message_id.value(), next_id_++);
      entry.holder = receiver;
      ++entry.attempts;
      receiver->in_hand_[entry.token] = entry.message->message.ByteSize();
      batches[receiver].push_back({entry.message->message, entry.message->message_id,
                                   entry.message->time, entry.attempts, AckToken(entry.token)});
    }
  }
  for (auto& [receiver, deliveries] : batches) {
    if (receiver->life_ != FakeBusReceiver::Life::kRunning) continue;
    receiver->in_callback_ = true;
    lock.unlock();
    receiver->sink_.OnDeliveries(std::move(deliveries));
    lock.lock();
    receiver->in_callback_ = false;
    changed_.notify_all();
  }
}

absl::Status FakeBus::TakeAck(const AckToken& token, bool ack) {
  AckScript script;
  {
    std::scoped_lock lock(mu_);
    script = on_ack_;
  }
  if (script) {
    if (absl::Status status = script(token); !status.ok()) return status;
  }
  std::scoped_lock lock(mu_);
  (ack ? acked_ : released_).push_back(token);
  for (auto& [name, sub] : subscriptions_) {
    for (size_t i = 0; i < sub.entries.size(); ++i) {
      if (sub.entries[i].token != token.value()) continue;
      if (ack) {
        sub.entries[i].acked = true;
        sub.entries[i].token.clear();
      } else {
        ReleaseEntry(sub, i);
      }
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();  // a delivery that was superseded: taken without effect
}

// Back into the queue, and on an ordered subscription every later message of the key with it.
void FakeBus::ReleaseEntry(Sub& sub, size_t index) {
  const std::string key = sub.entries[index].message->message.ordering_key;
  sub.entries[index].token.clear();
  if (!sub.settings.ordering || key.empty()) return;
  for (size_t i = index + 1; i < sub.entries.size(); ++i) {
    if (sub.entries[i].message->message.ordering_key != key) continue;
    sub.entries[i].token.clear();
    sub.entries[i].acked = false;
  }
}

void FakeBus::OnPublish(PublishScript script) {
  std::scoped_lock lock(mu_);
  on_publish_ = std::move(script);
}

void FakeBus::OnAck(AckScript script) {
  std::scoped_lock lock(mu_);
  on_ack_ = std::move(script);
}

void FakeBus::HoldPublishes(bool hold) {
  {
    std::scoped_lock lock(mu_);
    hold_publishes_ = hold;
    if (!hold)
      std::move(held_publishes_.begin(), held_publishes_.end(), std::back_inserter(tasks_));
    if (!hold) held_publishes_.clear();
  }
  changed_.notify_all();
}

void FakeBus::SetClockAhead(Millis ahead) {
  std::scoped_lock lock(mu_);
  clock_ahead_ = ahead;
}

void FakeBus::HoldAcks(bool hold) {
  {
    std::scoped_lock lock(mu_);
    hold_acks_ = hold;
    if (!hold) std::move(held_acks_.begin(), held_acks_.end(), std::back_inserter(tasks_));
    if (!hold) held_acks_.clear();
  }
  changed_.notify_all();
}

void FakeBus::LoseLeases(const std::string& subscription, const MessageId& message) {
  Post([this, subscription, message] {
    std::unique_lock lock(mu_);
    const auto receivers = receivers_;
    for (FakeBusReceiver* receiver : receivers) {
      if (receiver->options_.subscription != subscription) continue;
      if (receiver->life_ != FakeBusReceiver::Life::kRunning) continue;
      std::vector<AckToken> lost;
      Sub& sub = subscriptions_[subscription];
      std::vector<size_t> held;
      for (size_t i = 0; i < sub.entries.size(); ++i) {
        const Entry& entry = sub.entries[i];
        if (entry.holder != receiver || entry.token.empty()) continue;
        if (!message.value().empty() && entry.message->message_id != message) continue;
        if (receiver->in_hand_.erase(entry.token) > 0) lost.emplace_back(entry.token);
        held.push_back(i);
      }
      for (const size_t i : held) ReleaseEntry(sub, i);
      receiver->in_callback_ = true;
      lock.unlock();
      receiver->sink_.OnLeaseLost(std::move(lost));
      lock.lock();
      receiver->in_callback_ = false;
      changed_.notify_all();
    }
  });
}

void FakeBus::SetStreamState(const std::string& subscription, const absl::Status& state) {
  Post([this, subscription, state] {
    std::unique_lock lock(mu_);
    const auto receivers = receivers_;
    for (FakeBusReceiver* receiver : receivers) {
      if (receiver->options_.subscription != subscription) continue;
      if (receiver->life_ != FakeBusReceiver::Life::kRunning) continue;
      receiver->in_callback_ = true;
      lock.unlock();
      receiver->sink_.OnStreamState(state);
      lock.lock();
      receiver->in_callback_ = false;
      changed_.notify_all();
    }
  });
}

std::vector<FakeBus::Published> FakeBus::published() const {
  std::scoped_lock lock(mu_);
  std::vector<Published> all;
  for (const auto& message : published_) all.push_back(*message);
  return all;
}

std::vector<AckToken> FakeBus::acked() const {
  std::scoped_lock lock(mu_);
  return acked_;
}

std::vector<AckToken> FakeBus::released() const {
  std::scoped_lock lock(mu_);
  return released_;
}

int64_t FakeBus::Outstanding(const std::string& subscription) const {
  std::scoped_lock lock(mu_);
  const auto sub = subscriptions_.find(subscription);
  if (sub == subscriptions_.end()) return 0;
  return std::count_if(sub->second.entries.begin(), sub->second.entries.end(),
                       [](const Entry& entry) { return !entry.token.empty(); });
}

int64_t FakeBus::Backlog(const std::string& subscription) const {
  std::scoped_lock lock(mu_);
  const auto sub = subscriptions_.find(subscription);
  if (sub == subscriptions_.end()) return 0;
  return std::count_if(sub->second.entries.begin(), sub->second.entries.end(),
                       [](const Entry& entry) { return !entry.acked; });
}

std::vector<std::string> FakeBus::seeks() const {
  std::scoped_lock lock(mu_);
  return seeks_;
}

bool FakeBus::Await(const std::function<bool()>& condition) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::unique_lock lock(mu_);
    // The condition may hang on something that is not the bus's: look again now and then.
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace lockstep::testing
