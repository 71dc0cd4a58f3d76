#pragma once

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
  void Raise(const std::string& key, const MessageId& id, SteadyTime now);

  // Nothing = it passes. Otherwise it goes back, after that pause: without one, a server that has
  // only this message to offer and we would play ball with it.
  std::optional<Millis> Arrived(const std::string& key, const MessageId& id, SteadyTime now);

  // Forgets keys of which nothing was heard for long: other instances have them.
  void Sweep(SteadyTime now);

  size_t size() const { return fences_.size(); }

 private:
  struct Awaited {
    MessageId id;
    int returns = 0;  // since the key last moved on
  };
  struct Fence {
    std::deque<Awaited> awaited;  // in the order in which they may pass
    SteadyTime touched;
  };

  static void ForgetReturns(Fence& fence);

  std::unordered_map<std::string, Fence> fences_;
};

}  // namespace lockstep::pubsub::google_cloud
