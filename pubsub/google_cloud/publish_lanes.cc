#include "pubsub/google_cloud/publish_lanes.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/limits.h"

namespace lockstep::pubsub::google_cloud {
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

PublishLanes::PublishLanes(const PublisherOptions& options, Send send, Post post)
    : timeout_(options.timeout),
      send_(std::move(send)),
      post_(std::move(post)),
      max_requests_(options.max_requests_in_flight) {}

void PublishLanes::Publish(const std::string& topic, std::vector<Message> messages,
                           Publisher::Done done) {
  std::vector<absl::Status> limits;
  limits.reserve(messages.size());
  for (const Message& message : messages) limits.push_back(CheckLimits(message));
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout_;
  auto call = std::make_shared<Call>();
  call->results.resize(messages.size());
  call->open = messages.size();
  call->done = std::move(done);
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    for (size_t i = 0; i < messages.size(); ++i) {
      Lane& lane = FindLane(topic, messages[i].ordering_key);
      Accept(lane, {std::move(messages[i]), call, i, deadline}, limits[i], actions);
    }
    if (messages.empty()) actions.report.push_back(call);
    FillSlots(actions);
  }
  // Not on the caller's thread: it may hold a lock that its callback takes.
  if (!actions.report.empty()) {
    post_([this, calls = std::exchange(actions.report, {})] { Report(calls); });
  }
  Run(std::move(actions));
}

void PublishLanes::SetMaxRequests(int requests) {
  std::scoped_lock lock(mu_);
  max_requests_ = requests;
}

PublishLanes::Lane& PublishLanes::FindLane(const std::string& topic, const std::string& key) {
  const auto [place, added] = lanes_.try_emplace(topic + '\n' + key);
  if (added) {
    place->second.topic = topic;
    place->second.key = key;
  }
  return place->second;
}

void PublishLanes::Accept(Lane& lane, Item item, const absl::Status& limits, Actions& actions) {
  if (closed_) {
    Settle(item, Cancelled(), actions);
    return Forget(lane);
  }
  // A failure like any other: if it was sent again by somebody who is just being told, its
  // successors must not overtake it.
  if (lane.unreported > 0) return Fail(lane, item, Aborted(), actions);
  if (!limits.ok()) {
    Fail(lane, item, limits, actions);
    return Forget(lane);
  }
  lane.waiting.push_back(std::move(item));
  List(lane);
}

// Queues the lane for a slot if it may send.
void PublishLanes::List(Lane& lane) {
  if (lane.listed || lane.waiting.empty()) return;
  if (lane.under_way > 0 && !lane.key.empty()) return;
  lane.listed = true;
  ready_.push_back(&lane);
}

void PublishLanes::FillSlots(Actions& actions) {
  while (under_way_ < max_requests_ && !ready_.empty()) {
    Lane& lane = *ready_.front();
    ready_.pop_front();
    lane.listed = false;
    if (TakeBurst(lane, actions)) {
      ++under_way_;
      ++lane.under_way;
      List(lane);
    } else {
      Forget(lane);
    }
  }
}

bool PublishLanes::TakeBurst(Lane& lane, Actions& actions) {
  const SteadyTime now = std::chrono::steady_clock::now();
  Actions::Sending sending{.burst = {lane.topic, lane.key, {}}, .lane = &lane, .items = {}};
  int64_t bytes = static_cast<int64_t>(lane.topic.size()) + kFraming;
  while (!lane.waiting.empty() && sending.items.size() < kMaxPublishMessages) {
    Item& item = lane.waiting.front();
    if (item.deadline <= now) {
      Item expired = std::move(item);
      lane.waiting.pop_front();
      Fail(lane, expired, absl::DeadlineExceededError("the message could not be sent in time"),
           actions);
      if (!lane.key.empty()) AbortWaiting(lane, Aborted(), actions);
      continue;
    }
    const int64_t size = WireSize(item.message);
    if (!sending.items.empty() && bytes + size > kMaxPublishBytes) break;
    bytes += size;
    sending.burst.messages.push_back(std::move(item.message));
    sending.items.push_back(std::move(item));
    lane.waiting.pop_front();
  }
  if (sending.items.empty()) return false;
  actions.send.push_back(std::move(sending));
  return true;
}

void PublishLanes::Settle(Item& item, absl::StatusOr<MessageId> result, Actions& actions) {
  Call& call = *item.call;
  call.results[item.index] = std::move(result);
  if (--call.open > 0) return;
  actions.report.push_back(std::move(item.call));
}

void PublishLanes::Fail(Lane& lane, Item& item, const absl::Status& status, Actions& actions) {
  if (!lane.key.empty()) {
    ++lane.unreported;
    item.call->failed.push_back(&lane);
  }
  Settle(item, status, actions);
}

void PublishLanes::AbortWaiting(Lane& lane, const absl::Status& status, Actions& actions) {
  for (Item& item : std::exchange(lane.waiting, {})) Settle(item, status, actions);
}

void PublishLanes::Forget(Lane& lane) {
  if (lane.under_way > 0 || lane.unreported > 0 || lane.listed || !lane.waiting.empty()) return;
  lanes_.erase(lane.topic + '\n' + lane.key);
}

void PublishLanes::OnAnswer(Lane* lane, std::vector<Item>& items, Results results) {
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    bool failed = false;
    for (size_t i = 0; i < items.size(); ++i) {
      if (results[i].ok()) {
        Settle(items[i], std::move(results[i]), actions);
        continue;
      }
      failed = true;
      Fail(*lane, items[i], closed_ ? Cancelled() : results[i].status(), actions);
    }
    if (failed && !lane->key.empty()) AbortWaiting(*lane, Aborted(), actions);
    --under_way_;
    --lane->under_way;
    List(*lane);
    Forget(*lane);
    FillSlots(actions);
  }
  Run(std::move(actions));
}

void PublishLanes::Run(Actions actions) {
  for (Actions::Sending& sending : actions.send) {
    auto items = std::make_shared<std::vector<Item>>(std::move(sending.items));
    send_(std::move(sending.burst), [this, lane = sending.lane, items](Results results) {
      OnAnswer(lane, *items, std::move(results));
    });
  }
  Report(actions.report);
}

void PublishLanes::Report(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const auto& call : calls) {
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
void PublishLanes::Reported(const Call& call) {
  std::scoped_lock lock(mu_);
  for (Lane* lane : call.failed) {
    --lane->unreported;
    Forget(*lane);
  }
}

void PublishLanes::Close() {
  Actions actions;
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
    ready_.clear();
    std::vector<Lane*> lanes;
    for (auto& [name, lane] : lanes_) lanes.push_back(&lane);
    for (Lane* lane : lanes) {
      lane->listed = false;
      AbortWaiting(*lane, Cancelled(), actions);
    }
    for (Lane* lane : lanes) Forget(*lane);
  }
  Run(std::move(actions));
}

bool PublishLanes::Idle() const {
  std::scoped_lock lock(mu_);
  return under_way_ == 0;
}

}  // namespace lockstep::pubsub::google_cloud
