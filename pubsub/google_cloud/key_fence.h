#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::pubsub::google_cloud {

// Puts a key's order back after one of its messages was given back. google-cloud-cpp then hands
// over the successors that it holds before the message itself returns; the fence sends them back
// as well and lets them pass only in the order in which they came first. A message that keeps
// coming while an earlier one does not shows that the earlier one was acked elsewhere (another
// instance, a dead-letter topic): it passes then. Belongs to one thread.
class KeyFence {
 public:
  // How often a message is sent back, while nothing of its key passes, before the fence believes
  // that its predecessors are gone.
  static constexpr int kMaxReturns = 6;

  // `id` was given back: nothing of the key passes before it does.
  void Raise(const std::string& key, const MessageId& id, SteadyTime now) {
    if (key.empty()) return;
    Fence& fence = fences_[key];
    fence.touched = now;
    std::erase_if(fence.awaited, [&](const Awaited& awaited) { return awaited.id == id; });
    // One message of a key is out at a time, so what is given back precedes all that was sent back.
    fence.awaited.push_front({id});
    ForgetReturns(fence);
  }

  // Nothing = it passes. Otherwise it goes back, after that pause: without one, a server that has
  // only this message to offer and we would play ball with it.
  std::optional<Millis> Arrived(const std::string& key, const MessageId& id, SteadyTime now) {
    const auto fence = fences_.find(key);
    if (fence == fences_.end()) return std::nullopt;
    std::deque<Awaited>& awaited = fence->second.awaited;
    fence->second.touched = now;
    auto place = std::find_if(awaited.begin(), awaited.end(),
                              [&](const Awaited& candidate) { return candidate.id == id; });
    if (place == awaited.end()) place = awaited.insert(awaited.end(), {id});
    if (place != awaited.begin() && place->returns < kMaxReturns) {
      const int returns = place->returns++;
      return returns == 0 ? Millis(0) : kFirstPause * (1 << (returns - 1));
    }
    awaited.erase(awaited.begin(), place + 1);
    ForgetReturns(fence->second);
    if (awaited.empty()) fences_.erase(fence);
    return std::nullopt;
  }

  // Forgets keys of which nothing was heard for long: other instances have them.
  void Sweep(SteadyTime now) {
    std::erase_if(fences_,
                  [&](const auto& entry) { return now - entry.second.touched > kForgetAfter; });
  }

  size_t size() const { return fences_.size(); }

 private:
  static constexpr Millis kFirstPause{50};
  static constexpr std::chrono::minutes kForgetAfter{15};  // longer than any lease

  struct Awaited {
    MessageId id;
    int returns = 0;  // since the key last moved on
  };
  struct Fence {
    std::deque<Awaited> awaited;  // in the order in which they may pass
    SteadyTime touched;
  };

  // The key moved on: that its later messages have been here says nothing about the next one.
  static void ForgetReturns(Fence& fence) {
    for (Awaited& awaited : fence.awaited) awaited.returns = 0;
  }

  std::unordered_map<std::string, Fence> fences_;
};

}  // namespace lockstep::pubsub::google_cloud
