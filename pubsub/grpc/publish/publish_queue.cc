#include "pubsub/grpc/publish/publish_queue.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"
#include "pubsub/limits.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// Per message, key and attribute: tags and lengths on the wire, generously.
constexpr int64_t kFraming = 16;
// One try; a server that hangs must not eat the whole timeout.
constexpr Millis kMaxAttempt{15'000};

int64_t WireSize(const Message& message) {
  return message.ByteSize() + kFraming * static_cast<int64_t>(2 + message.attributes.size());
}

absl::Status Cancelled() { return absl::CancelledError("the publisher was closed"); }

}  // namespace

struct PublishQueue::Call {
  std::vector<absl::StatusOr<MessageId>> results;
  size_t open = 0;
  Publisher::Done done;
  std::vector<std::pair<Topic*, std::string>> failed_keys;
};

struct PublishQueue::Actions {
  std::vector<std::shared_ptr<Request>> send;
  std::vector<std::unique_ptr<Call>> report;
};

PublishQueue::PublishQueue(const PublisherOptions& options, PublishRpc& rpc, Timers& timers)
    : timeout_(options.timeout),
      retry_{.max_attempts = 0,
             .base = Millis(50),
             .factor = 2,
             .cap = Millis(2'000),
             .jitter = RetryPolicy::Jitter::kProportional,
             .jitter_amount = 0.3},
      rpc_(rpc),
      timers_(timers),
      max_requests_(options.max_requests_in_flight) {}

PublishQueue::~PublishQueue() { Close(); }

void PublishQueue::Publish(const std::string& topic_name, std::vector<Message> messages,
                           Publisher::Done done) {
  std::vector<absl::Status> limits;
  limits.reserve(messages.size());
  for (const Message& message : messages) limits.push_back(CheckLimits(message));
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout_;

  auto call = std::make_unique<Call>();
  call->results.resize(messages.size());
  call->open = messages.size();
  call->done = std::move(done);
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    if (messages.empty()) {
      actions.report.push_back(std::move(call));
    } else {
      Call* raw = call.release();  // owned by its open messages from here on
      auto& slot = topics_[topic_name];
      if (slot == nullptr) {
        slot = std::make_unique<Topic>();
        slot->name = topic_name;
      }
      for (size_t i = 0; i < messages.size(); ++i) {
        Accept(*slot, std::move(messages[i]), raw, i, deadline, limits[i], actions);
      }
      if (!slot->listed && !slot->ready.empty()) {
        slot->listed = true;
        active_.push_back(slot.get());
      }
      FillSlots(actions);
    }
    ReportLater(actions);
  }
  Run(std::move(actions));
}

void PublishQueue::SetMaxRequests(int requests) {
  std::scoped_lock lock(mu_);
  max_requests_ = requests;
}

// Not on the caller's thread: it may hold a lock that its callback takes.
void PublishQueue::ReportLater(Actions& actions) {
  if (actions.report.empty()) return;
  std::move(actions.report.begin(), actions.report.end(), std::back_inserter(deferred_));
  actions.report.clear();
  if (deferred_timer_ == 0)
    deferred_timer_ = timers_.After(Millis(0), [this] { ReportDeferred(); });
}

void PublishQueue::ReportDeferred() {
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    actions.report.swap(deferred_);
    fired_ = std::exchange(deferred_timer_, 0);
  }
  Run(std::move(actions));
}

void PublishQueue::Accept(Topic& topic, Message message, Call* call, size_t index,
                          SteadyTime deadline, const absl::Status& limits, Actions& actions) {
  const std::string& key = message.ordering_key;
  if (closed_) return Settle(call, index, Cancelled(), actions);
  if (!key.empty()) {
    const auto state = topic.keys.find(key);
    if (state != topic.keys.end() && state->second.unreported > 0) {
      // A failure like any other: if it was sent again by somebody who is just being told, its
      // successors must not overtake it.
      return Fail(topic, key, call, index,
                  absl::AbortedError("an earlier message of this ordering key failed"), actions);
    }
  }
  if (!limits.ok()) return Fail(topic, key, call, index, limits, actions);
  topic.ready.push_back({std::move(message), call, index, deadline});
}

// Fills free slots with requests, topics in turn.
void PublishQueue::FillSlots(Actions& actions) {
  while (in_flight_ < max_requests_ && !active_.empty()) {
    Topic* topic = active_.front();
    active_.pop_front();
    auto request = NextRequest(*topic, actions);
    topic->listed = !topic->ready.empty() || !topic->unblocked.empty();
    if (topic->listed) active_.push_back(topic);
    if (request == nullptr) continue;
    ++in_flight_;
    actions.send.push_back(std::move(request));
  }
}

std::shared_ptr<PublishQueue::Request> PublishQueue::NextRequest(Topic& topic, Actions& actions) {
  auto request = std::make_shared<Request>();
  request->topic = &topic;
  int64_t bytes = static_cast<int64_t>(topic.name.size()) + kFraming;
  if (TakeFrom(topic.unblocked, topic, *request, bytes, actions)) {
    TakeFrom(topic.ready, topic, *request, bytes, actions);
  }
  if (request->messages.empty()) return nullptr;
  for (const std::string& key : request->keys) topic.keys[key].in_flight = true;
  return request;
}

// Moves items into the request, or behind their key if that is in flight. False = it is full.
bool PublishQueue::TakeFrom(std::deque<Item>& items, Topic& topic, Request& request, int64_t& bytes,
                            Actions& actions) {
  const SteadyTime now = std::chrono::steady_clock::now();
  while (!items.empty()) {
    Item& item = items.front();
    const std::string& key = item.message.ordering_key;
    const auto state = key.empty() ? topic.keys.end() : topic.keys.find(key);
    if (state != topic.keys.end() && state->second.in_flight) {
      state->second.waiting.push_back(std::move(item));
      items.pop_front();
      continue;
    }
    if (item.deadline <= now) {
      Item expired = std::move(item);
      items.pop_front();
      const std::string expired_key = expired.message.ordering_key;
      Fail(topic, expired_key, expired.call, expired.index,
           absl::DeadlineExceededError("the message could not be sent in time"), actions);
      if (!expired_key.empty()) {
        // Its predecessors may be in this very request; only what comes after it aborts.
        AbortWaiting(topic, {expired_key}, actions);
      }
      continue;
    }
    const int64_t size = WireSize(item.message);
    if (!request.messages.empty() &&
        (request.messages.size() >= kMaxPublishMessages || bytes + size > kMaxPublishBytes)) {
      return false;
    }
    bytes += size;
    if (request.messages.empty()) request.deadline = item.deadline;
    request.deadline = std::min(request.deadline, item.deadline);
    if (!key.empty()) request.keys.insert(key);
    request.places.emplace_back(item.call, item.index);
    request.messages.push_back(std::move(item.message));
    items.pop_front();
  }
  return true;
}

void PublishQueue::Settle(Call* call, size_t index, absl::StatusOr<MessageId> result,
                          Actions& actions) {
  call->results[index] = std::move(result);
  if (--call->open == 0) actions.report.emplace_back(call);
}

void PublishQueue::Fail(Topic& topic, const std::string& key, Call* call, size_t index,
                        const absl::Status& status, Actions& actions) {
  if (!key.empty()) {
    ++topic.keys[key].unreported;
    call->failed_keys.emplace_back(&topic, key);
  }
  Settle(call, index, status, actions);
}

// Fails everything of these keys that still waits: it came after what failed.
void PublishQueue::AbortWaiting(Topic& topic, const absl::flat_hash_set<std::string>& keys,
                                Actions& actions) {
  std::vector<Item> aborted;
  for (const std::string& key : keys) {
    const auto state = topic.keys.find(key);
    if (state == topic.keys.end()) continue;
    std::move(state->second.waiting.begin(), state->second.waiting.end(),
              std::back_inserter(aborted));
    state->second.waiting.clear();
  }
  for (std::deque<Item>* items : {&topic.unblocked, &topic.ready}) {
    const auto kept = std::stable_partition(items->begin(), items->end(), [&](const Item& item) {
      return !keys.contains(item.message.ordering_key);
    });
    std::move(kept, items->end(), std::back_inserter(aborted));
    items->erase(kept, items->end());
  }
  for (Item& item : aborted) {
    Settle(item.call, item.index,
           absl::AbortedError("an earlier message of this ordering key failed"), actions);
  }
}

// The request is over: results, successors, and its keys are free again.
void PublishQueue::Conclude(Request& request, const absl::Status& status,
                            std::vector<std::string>& ids, Actions& actions) {
  Topic& topic = *request.topic;
  --in_flight_;
  for (size_t i = 0; i < request.places.size(); ++i) {
    const auto [call, index] = request.places[i];
    if (status.ok()) {
      Settle(call, index, MessageId(std::move(ids[i])), actions);
    } else {
      Fail(topic, request.messages[i].ordering_key, call, index, status, actions);
    }
  }
  if (!status.ok() && !request.keys.empty()) AbortWaiting(topic, request.keys, actions);
  for (const std::string& name : request.keys) {
    const auto key = topic.keys.find(name);
    if (key == topic.keys.end()) continue;
    key->second.in_flight = false;
    std::move(key->second.waiting.begin(), key->second.waiting.end(),
              std::back_inserter(topic.unblocked));
    key->second.waiting.clear();
    if (key->second.unreported == 0) topic.keys.erase(key);
  }
  if (!topic.listed && !topic.unblocked.empty()) {
    topic.listed = true;
    active_.push_back(&topic);
  }
}

void PublishQueue::Run(Actions actions) {
  for (const auto& request : actions.send) Send(request);
  for (const auto& call : actions.report) {
    try {
      call->done(std::move(call->results));
    } catch (const std::exception& error) {
      log::Error("a publish callback threw", {{"error", error.what()}});
    } catch (...) {
      log::Error("a publish callback threw");
    }
    Reported(*call);
  }
}

// Not before its callback has returned: that may wait for a lock under which successors are sent.
void PublishQueue::Reported(const Call& call) {
  if (call.failed_keys.empty()) return;
  std::scoped_lock lock(mu_);
  for (const auto& [topic, name] : call.failed_keys) {
    const auto key = topic->keys.find(name);
    Key& state = key->second;
    --state.unreported;
    if (state.unreported == 0 && !state.in_flight && state.waiting.empty()) topic->keys.erase(key);
  }
}

void PublishQueue::Send(const std::shared_ptr<Request>& request) {
  const auto left =
      std::chrono::duration_cast<Millis>(request->deadline - std::chrono::steady_clock::now());
  ++request->attempts;
  rpc_.Send(request->topic->name, request->messages, std::clamp(left, Millis(1), kMaxAttempt),
            [this, request](const absl::Status& status, std::vector<std::string> ids) {
              OnAnswer(request, status, std::move(ids));
            });
}

void PublishQueue::OnAnswer(const std::shared_ptr<Request>& request, const absl::Status& answer,
                            std::vector<std::string> ids) {
  absl::Status status = answer;
  if (status.ok() && ids.size() != request->places.size()) {
    status = Internal("the server gave {} ids for {} messages", ids.size(), request->places.size());
  }
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    const Millis delay = retry_.Delay(request->attempts, random_());
    if (closed_ && !status.ok()) {
      Conclude(*request, Cancelled(), ids, actions);
    } else if (MayPass(status.code()) && !status.ok() &&
               std::chrono::steady_clock::now() + delay < request->deadline) {
      resting_.insert(request);
      request->retry = timers_.After(delay, [this, request] { Resend(request); });
    } else {
      Conclude(*request, status, ids, actions);
    }
    FillSlots(actions);
  }
  Run(std::move(actions));
}

void PublishQueue::Resend(const std::shared_ptr<Request>& request) {
  {
    std::scoped_lock lock(mu_);
    if (resting_.erase(request) == 0) return;  // closed meanwhile
    fired_ = request->retry;
  }
  Send(request);
}

void PublishQueue::Close() {
  Actions actions;
  std::vector<Timers::Id> timers;
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
    actions.report.swap(deferred_);
    timers = {deferred_timer_, fired_};
    std::vector<std::string> none;
    const auto resting = std::move(resting_);
    resting_.clear();
    for (const auto& request : resting) {
      timers.push_back(request->retry);
      Conclude(*request, Cancelled(), none, actions);
    }
    active_.clear();
    for (auto& [name, topic] : topics_) {
      topic->listed = false;
      for (std::deque<Item>* items : {&topic->unblocked, &topic->ready}) {
        for (Item& item : *items) Settle(item.call, item.index, Cancelled(), actions);
        items->clear();
      }
      // Settle may erase keys: it must not meet this loop.
      std::vector<Item> waiting;
      for (auto& [key_name, key] : topic->keys) {
        std::move(key.waiting.begin(), key.waiting.end(), std::back_inserter(waiting));
        key.waiting.clear();
      }
      for (Item& item : waiting) Settle(item.call, item.index, Cancelled(), actions);
    }
  }
  Run(std::move(actions));
  for (const Timers::Id id : timers) timers_.Cancel(id);
}

}  // namespace lockstep::pubsub::grpc_client
