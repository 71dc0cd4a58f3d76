#include "tests/support/fake_bus_parts.h"

#include "platform/status.h"
#include "pubsub/message.h"

namespace lockstep::testing {

using pubsub::AckToken;
using pubsub::Message;

FakeBusPublisher::~FakeBusPublisher() {
  std::unique_lock lock(bus_.mu_);
  closed_ = true;
  std::move(bus_.held_publishes_.begin(), bus_.held_publishes_.end(),
            std::back_inserter(bus_.tasks_));
  bus_.held_publishes_.clear();
  bus_.changed_.notify_all();
  bus_.changed_.wait(lock, [this] { return pending_ == 0; });
}

void FakeBusPublisher::Publish(const std::string& topic, std::vector<Message> messages, Done done) {
  {
    std::scoped_lock lock(bus_.mu_);
    ++pending_;
    auto shared = std::make_shared<std::vector<Message>>(std::move(messages));
    auto& tasks = bus_.hold_publishes_ ? bus_.held_publishes_ : bus_.tasks_;
    tasks.push_back([this, topic, shared, done = std::move(done)] {
      Perform(topic, std::move(*shared), done);
    });
  }
  bus_.changed_.notify_all();
}

void FakeBusPublisher::Perform(const std::string& topic, std::vector<Message> messages,
                               const Done& done) {
  std::vector<absl::StatusOr<MessageId>> results;
  std::set<std::string> failed;
  FakeBus::PublishScript script;
  {
    std::scoped_lock lock(bus_.mu_);
    script = bus_.on_publish_;
  }
  for (Message& message : messages) {
    absl::Status status = pubsub::CheckLimits(message);
    if (status.ok() && script) status = script(topic, message);
    std::scoped_lock lock(bus_.mu_);
    const std::string key = message.ordering_key;
    if (failed.contains(key)) {
      status = absl::AbortedError("an earlier message of this ordering key failed");
    } else if (closed_) {
      status = absl::CancelledError("the publisher was closed");
    } else if (bus_.topics_.count(topic) == 0 && status.ok()) {
      status = NotFound("no topic {}", topic);
    }
    if (!status.ok()) {
      if (!key.empty()) failed.insert(key);
      results.emplace_back(status);
      continue;
    }
    auto published = std::make_shared<FakeBus::Published>();
    published->topic = topic;
    published->message = std::move(message);
    published->message_id = MessageId(std::to_string(bus_.next_id_++));
    published->time = std::chrono::system_clock::now() + bus_.clock_ahead_;
    bus_.published_.push_back(published);
    results.emplace_back(published->message_id);
    for (auto& [name, sub] : bus_.subscriptions_) {
      if (sub.settings.topic == topic) sub.entries.push_back({.message = published});
    }
  }
  done(std::move(results));
  std::scoped_lock lock(bus_.mu_);
  --pending_;
  bus_.changed_.notify_all();
}

absl::Status FakeBusReceiver::Start() {
  {
    std::scoped_lock lock(bus_.mu_);
    if (life_ != Life::kNew) return FailedPrecondition("started or stopped before");
    life_ = Life::kRunning;
    bus_.receivers_.push_back(this);
  }
  bus_.SetStreamState(options_.subscription, absl::OkStatus());
  return absl::OkStatus();
}

void FakeBusReceiver::StopPulling() {
  std::scoped_lock lock(bus_.mu_);
  if (life_ == Life::kRunning) life_ = Life::kDraining;
}

void FakeBusReceiver::Stop() {
  std::unique_lock lock(bus_.mu_);
  if (life_ == Life::kStopped) return;
  life_ = Life::kStopped;
  // Held acks are answered with CANCELLED: they look at life_ first.
  std::move(bus_.held_acks_.begin(), bus_.held_acks_.end(), std::back_inserter(bus_.tasks_));
  bus_.held_acks_.clear();
  bus_.changed_.notify_all();
  bus_.changed_.wait(lock, [this] { return pending_ == 0 && !in_callback_; });
  std::erase(bus_.receivers_, this);
  // The server would wait for the deadline; a test need not.
  for (auto& [name, sub] : bus_.subscriptions_) {
    for (size_t i = 0; i < sub.entries.size(); ++i) {
      const bool held = sub.entries[i].holder == this && !sub.entries[i].token.empty();
      if (held) bus_.ReleaseEntry(sub, i);
    }
  }
  bus_.tasks_.push_back([] {});  // look for deliveries again
  bus_.changed_.notify_all();
}

void FakeBusReceiver::Acknowledge(std::vector<AckToken> tokens, Done done) {
  Finish(std::move(tokens), std::move(done), true);
}

void FakeBusReceiver::Release(std::vector<AckToken> tokens, Done done) {
  Finish(std::move(tokens), std::move(done), false);
}

void FakeBusReceiver::Finish(std::vector<AckToken> tokens, Done done, bool ack) {
  {
    std::scoped_lock lock(bus_.mu_);
    for (const AckToken& token : tokens) in_hand_.erase(token.value());
    ++pending_;
    const bool held = bus_.hold_acks_ && life_ != Life::kStopped;
    auto& tasks = held ? bus_.held_acks_ : bus_.tasks_;
    tasks.push_back([this, held, tokens = std::move(tokens), done = std::move(done), ack] {
      bool cancelled = false;
      {
        std::scoped_lock inner(bus_.mu_);
        cancelled = held && life_ == Life::kStopped;
      }
      std::vector<absl::Status> results;
      for (const AckToken& token : tokens) {
        results.push_back(cancelled ? absl::CancelledError("the receiver was stopped")
                                    : bus_.TakeAck(token, ack));
      }
      done(std::move(results));
      std::scoped_lock inner(bus_.mu_);
      --pending_;
      bus_.changed_.notify_all();
    });
  }
  bus_.changed_.notify_all();
}

}  // namespace lockstep::testing
