#include "runner/lane/lane_queue.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "runner/lane/ack_stage.h"

namespace lockstep::runner {
namespace {

template <typename Many>
std::vector<pubsub::AckToken> TokensOf(Many waiting) {
  std::vector<pubsub::AckToken> tokens;
  tokens.reserve(waiting.size());
  for (auto& w : waiting) tokens.push_back(std::move(w.delivery.token));
  return tokens;
}

}  // namespace

Gathering Gathering::For(const GroupOptions& options, int64_t in_hand) {
  constexpr Millis kMoment{20};
  if (options.linger > Millis(0)) return {options.linger, options.max_batch};
  const int64_t allowed = options.max_outstanding_messages;
  if (in_hand < allowed / 4 * 3) return {};
  const int64_t share = allowed / options.lanes;
  return {kMoment, std::min<int64_t>(share / 4, options.max_batch)};
}

std::vector<pubsub::AckToken> LaneQueue::Push(std::vector<Waiting> waiting) {
  {
    std::lock_guard lock(mu_);
    if (abandoned_) return TokensOf(std::move(waiting));
    for (Waiting& w : waiting) waiting_.push_back(std::move(w));
  }
  changed_.notify_one();
  return {};
}

void LaneQueue::Release(std::vector<std::string> keys) {
  std::lock_guard lock(mu_);
  if (abandoned_) return;
  std::move(keys.begin(), keys.end(), std::back_inserter(due_));
  changed_.notify_one();
}

bool LaneQueue::Await() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return !waiting_.empty() || !due_.empty() || closed_; });
  return !waiting_.empty() || !due_.empty();
}

std::vector<std::string> LaneQueue::TakeDue() {
  std::lock_guard lock(mu_);
  due_taken_ = !due_.empty();
  return std::exchange(due_, {});
}

std::vector<LaneQueue::Waiting> LaneQueue::Take(int max_messages, int64_t max_bytes,
                                                const Gathering& gathering) {
  std::unique_lock lock(mu_);
  if (!waiting_.empty() && gathering.linger.count() > 0) {
    changed_.wait_for(lock, gathering.linger, [&] {
      return closed_ || waiting_.size() >= static_cast<size_t>(gathering.enough);
    });
  }
  taken_oldest_ = OldestWaiting();
  std::vector<Waiting> taken;
  int64_t bytes = 0;
  while (!waiting_.empty() && taken.size() < static_cast<size_t>(max_messages)) {
    bytes += waiting_.front().bytes;
    if (!taken.empty() && bytes > max_bytes) break;
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  taken_ = static_cast<int64_t>(taken.size());
  return taken;
}

void LaneQueue::Done() {
  std::lock_guard lock(mu_);
  due_taken_ = false;
  taken_ = 0;
}

std::vector<pubsub::AckToken> LaneQueue::DropKeysOf(const std::vector<pubsub::AckToken>& lost) {
  const std::set<pubsub::AckToken> tokens(lost.begin(), lost.end());
  std::vector<pubsub::AckToken> dropped;
  std::lock_guard lock(mu_);
  std::set<std::string> keys;
  for (const Waiting& w : waiting_) {
    if (tokens.contains(w.delivery.token)) keys.insert(w.delivery.message.ordering_key);
  }
  if (keys.empty()) return dropped;
  const auto gone = std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
    // Without an ordering key a message stands for itself alone.
    const std::string& key = w.delivery.message.ordering_key;
    return key.empty() ? !tokens.contains(w.delivery.token) : !keys.contains(key);
  });
  for (auto w = gone; w != waiting_.end(); ++w) dropped.push_back(std::move(w->delivery.token));
  waiting_.erase(gone, waiting_.end());
  return dropped;
}

void LaneQueue::Close() {
  std::lock_guard lock(mu_);
  closed_ = true;
  changed_.notify_all();
}

std::vector<pubsub::AckToken> LaneQueue::Abandon() {
  std::lock_guard lock(mu_);
  closed_ = abandoned_ = true;
  due_.clear();
  changed_.notify_all();
  return TokensOf(std::exchange(waiting_, {}));
}

bool LaneQueue::idle() const {
  std::lock_guard lock(mu_);
  return waiting_.empty() && !closed_;
}

int64_t LaneQueue::in_hand() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(waiting_.size()) + taken_;
}

bool LaneQueue::releasing() const {
  std::lock_guard lock(mu_);
  return due_taken_ || !due_.empty();
}

void LaneQueue::Fill(LaneStatus& status) const {
  std::lock_guard lock(mu_);
  status.queued = static_cast<int64_t>(waiting_.size());
  status.in_batch = taken_;
  // What is being written came before what waits.
  const Times oldest = taken_ > 0 ? taken_oldest_ : OldestWaiting();
  status.oldest_published = oldest.published;
  status.oldest_received = oldest.received;
}

LaneQueue::Times LaneQueue::OldestWaiting() const {
  // A backfill's messages may be old, and say nothing about how far behind the events are.
  const auto first = std::ranges::find_if(
      waiting_, [](const Waiting& waiting) { return !IsAside(waiting.delivery.token); });
  if (first == waiting_.end()) return {};
  return {first->delivery.publish_time, first->received_at};
}

}  // namespace lockstep::runner
