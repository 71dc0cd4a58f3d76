#include "pubsub/publish_calls.h"

#include <map>
#include <set>
#include <utility>

namespace lockstep::pubsub {
namespace {

// Per message, key and attribute: tags and lengths on the wire, generously.
constexpr int64_t kFraming = 16;

int64_t WireSize(const Message& message) {
  return message.ByteSize() + kFraming * static_cast<int64_t>(2 + message.attributes.size());
}

absl::Status Cancelled() { return absl::CancelledError("the publisher was closed"); }
absl::Status Aborted() {
  return absl::AbortedError("an earlier message of this ordering key failed");
}

}  // namespace

PublishCalls::PublishCalls(const PublisherOptions& options, Keys keys, Send send, Post post)
    : timeout_(options.timeout),
      keys_(keys),
      send_(std::move(send)),
      post_(std::move(post)),
      max_requests_(options.max_requests_in_flight) {}

void PublishCalls::Publish(const std::string& topic, std::vector<Message> messages, Done done) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout_;
  const auto call = std::make_shared<Call>(messages.size(), std::move(done));
  Actions actions;
  if (messages.empty()) actions.report.push_back(call);
  std::map<std::string, SequencePtr> sequences;  // by key, under kApart
  std::vector<SequencePtr> order;
  std::set<std::string> failed;  // keys
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& key = messages[i].ordering_key;
    absl::Status status = failed.contains(key) ? Aborted() : CheckLimits(messages[i]);
    if (!status.ok()) {
      if (!key.empty()) failed.insert(key);
      Finish(call, i, std::move(status), actions);
      continue;
    }
    SequencePtr& sequence = sequences[keys_ == Keys::kApart ? key : ""];
    if (sequence == nullptr) {
      sequence = order.emplace_back(std::make_shared<Sequence>(
          Sequence{.call = call, .topic = topic, .deadline = deadline, .waiting = {}}));
    }
    sequence->waiting.emplace_back(std::move(messages[i]), i);
  }
  {
    std::scoped_lock lock(mu_);
    for (const SequencePtr& sequence : order) {
      if (closed_) {
        FailWaiting(*sequence, Cancelled(), actions);
      } else {
        ready_.push_back(sequence);
      }
    }
    FillSlots(actions);
    if (!actions.report.empty()) ++posted_;
  }
  // Not on the caller's thread: it may hold a lock that its callback takes.
  if (!actions.report.empty()) {
    post_([this, calls = std::exchange(actions.report, {})] {
      Report(calls);
      std::scoped_lock lock(mu_);
      --posted_;
      reported_.notify_all();
    });
  }
  Run(actions);
}

void PublishCalls::SetMaxRequests(int requests) {
  std::scoped_lock lock(mu_);
  max_requests_ = requests;
}

void PublishCalls::FillSlots(Actions& actions) {
  while (under_way_ < max_requests_ && !ready_.empty()) {
    const SequencePtr sequence = std::move(ready_.front());
    ready_.pop_front();
    if (sequence->deadline <= std::chrono::steady_clock::now()) {
      FailWaiting(*sequence, absl::DeadlineExceededError("the message could not be sent in time"),
                  actions);
    } else {
      Take(sequence, actions);
    }
  }
}

void PublishCalls::Take(const SequencePtr& sequence, Actions& actions) {
  auto request = std::make_shared<Request>(
      Request{.topic = sequence->topic, .messages = {}, .deadline = sequence->deadline});
  std::vector<size_t> places;
  int64_t bytes = static_cast<int64_t>(sequence->topic.size()) + kFraming;
  while (!sequence->waiting.empty() && places.size() < kMaxPublishMessages) {
    auto& [message, place] = sequence->waiting.front();
    bytes += WireSize(message);
    if (!places.empty() && bytes > kMaxPublishBytes) break;
    request->messages.push_back(std::move(message));
    places.push_back(place);
    sequence->waiting.pop_front();
  }
  ++under_way_;
  actions.send.push_back({sequence, std::move(request), std::move(places)});
}

void PublishCalls::FailWaiting(Sequence& sequence, const absl::Status& status, Actions& actions) {
  for (const auto& [message, place] : sequence.waiting)
    Finish(sequence.call, place, status, actions);
  sequence.waiting.clear();
}

void PublishCalls::Finish(const CallPtr& call, size_t place, absl::StatusOr<MessageId> result,
                          Actions& actions) {
  if (call->Finish(place, std::move(result))) actions.report.push_back(call);
}

void PublishCalls::OnAnswer(const Actions::Sending& sent, Results results) {
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    --under_way_;
    Sequence& sequence = *sent.sequence;
    std::set<std::string> failed;  // keys
    for (size_t i = 0; i < sent.places.size(); ++i) {
      if (!results[i].ok()) {
        if (closed_) results[i] = Cancelled();
        failed.insert(sent.request->messages[i].ordering_key);
      }
      Finish(sequence.call, sent.places[i], std::move(results[i]), actions);
    }
    failed.erase("");
    if (closed_) FailWaiting(sequence, Cancelled(), actions);
    std::erase_if(sequence.waiting, [&](const auto& waiting) {
      const bool behind = failed.contains(waiting.first.ordering_key);
      if (behind) Finish(sequence.call, waiting.second, Aborted(), actions);
      return behind;
    });
    if (!sequence.waiting.empty()) ready_.push_back(sent.sequence);
    FillSlots(actions);
  }
  Run(actions);
}

void PublishCalls::Run(const Actions& actions) {
  for (const Actions::Sending& sending : actions.send) {
    send_(sending.request,
          [this, sending](Results results) { OnAnswer(sending, std::move(results)); });
  }
  Report(actions.report);
}

void PublishCalls::Report(const std::vector<CallPtr>& calls) {
  for (const CallPtr& call : calls) call->Report("a publish callback");
}

void PublishCalls::Close() {
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
    for (const SequencePtr& sequence : std::exchange(ready_, {})) {
      FailWaiting(*sequence, Cancelled(), actions);
    }
  }
  Run(actions);
  std::unique_lock lock(mu_);
  reported_.wait(lock, [this] { return posted_ == 0; });
}

bool PublishCalls::Idle() const {
  std::scoped_lock lock(mu_);
  return under_way_ == 0;
}

}  // namespace lockstep::pubsub
