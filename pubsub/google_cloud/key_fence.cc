#include "pubsub/google_cloud/key_fence.h"

#include <algorithm>

namespace lockstep::pubsub::google_cloud {
namespace {

constexpr Millis kFirstPause{50};
constexpr std::chrono::minutes kForgetAfter{15};  // longer than any lease

}  // namespace

void KeyFence::Raise(const std::string& key, const MessageId& id, SteadyTime now) {
  if (key.empty()) return;
  Fence& fence = fences_[key];
  fence.touched = now;
  std::erase_if(fence.awaited, [&](const Awaited& awaited) { return awaited.id == id; });
  // One message of a key is out at a time, so what is given back precedes all that was sent back.
  fence.awaited.push_front({id});
  ForgetReturns(fence);
}

std::optional<Millis> KeyFence::Arrived(const std::string& key, const MessageId& id,
                                        SteadyTime now) {
  if (key.empty() || fences_.empty()) return std::nullopt;
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

// The key moved on: that its later messages have been here says nothing about the next one.
void KeyFence::ForgetReturns(Fence& fence) {
  for (Awaited& awaited : fence.awaited) awaited.returns = 0;
}

void KeyFence::Sweep(SteadyTime now) {
  std::erase_if(fences_,
                [&](const auto& entry) { return now - entry.second.touched > kForgetAfter; });
}

}  // namespace lockstep::pubsub::google_cloud
