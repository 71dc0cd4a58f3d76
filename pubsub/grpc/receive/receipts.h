#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/message.h"
#include "pubsub/stream_limits.h"

namespace lockstep::pubsub::grpc_client {

// Stands between the streams and the hand-over. With exactly-once delivery what a stream brings is
// ours only while its ack id is the last one: so each response is confirmed first, by setting its
// deadline anew, and what the server refuses (it goes to somebody else, or comes again) is not
// handed over at all. Without it, everything passes through at once.
// Batches leave in the order in which they came, one at a time, on gRPC's threads. Safe from any
// thread; the owner awaits the RPCs before this object goes.
class Receipts {
 public:
  struct Batch {
    std::vector<Delivery> held;
    std::vector<Delivery> refused;
    SteadyTime received;
  };
  using HandOver = std::function<void(Batch)>;  // must not throw

  Receipts(AckRpc& rpc, Millis ack_deadline, HandOver hand_over)
      : rpc_(rpc),
        seconds_(static_cast<int>(StreamDeadline(ack_deadline).count())),
        hand_over_(std::move(hand_over)) {}

  void Add(std::vector<Delivery> deliveries, bool confirm) {
    std::vector<std::vector<std::string>> requests;
    if (confirm) requests = SplitIntoRequests(IdsOf(deliveries));
    auto waiting = std::make_unique<Waiting>();
    waiting->batch = {std::move(deliveries), {}, std::chrono::steady_clock::now()};
    waiting->open = requests.size();
    Waiting& added = *waiting;
    {
      std::scoped_lock lock(mu_);
      if (confirm || !queue_.empty() || handing_over_) queue_.push_back(std::move(waiting));
    }
    // Nothing to wait for: several streams may do this side by side.
    if (waiting != nullptr) return hand_over_(std::move(waiting->batch));
    for (auto& ids : requests) {
      rpc_.Send(std::move(ids), seconds_, kTimeout,
                [this, &added](const AckAnswer& answer) { OnAnswer(added, answer); });
    }
    if (!confirm) HandOverReady();
  }

  // Waits until everything has been handed over, at most so long.
  void Flush(Millis at_most) {
    std::unique_lock lock(mu_);
    empty_.wait_for(lock, at_most, [this] { return queue_.empty() && !handing_over_; });
  }

 private:
  // The shortest lease has ten seconds: half of it is left when nobody answers.
  static constexpr Millis kTimeout{5'000};

  struct Waiting {
    Batch batch;
    size_t open = 0;  // requests without an answer
  };

  static std::vector<std::string> IdsOf(const std::vector<Delivery>& deliveries) {
    std::vector<std::string> ids;
    ids.reserve(deliveries.size());
    for (const Delivery& delivery : deliveries) ids.push_back(delivery.token.value());
    return ids;
  }

  void OnAnswer(Waiting& waiting, const AckAnswer& answer) {
    {
      std::scoped_lock lock(mu_);
      --waiting.open;
      // What failed for now, or without a name, is handed over: its ack will tell.
      auto& [held, refused, received] = waiting.batch;
      const auto first = std::stable_partition(held.begin(), held.end(), [&](const Delivery& each) {
        return !answer.Refused(each.token.value());
      });
      std::move(first, held.end(), std::back_inserter(refused));
      held.erase(first, held.end());
    }
    HandOverReady();
  }

  void HandOverReady() {
    std::unique_lock lock(mu_);
    if (handing_over_) return;  // whoever does will see it
    handing_over_ = true;
    while (!queue_.empty() && queue_.front()->open == 0) {
      Batch batch = std::move(queue_.front()->batch);
      queue_.pop_front();
      lock.unlock();
      hand_over_(std::move(batch));
      lock.lock();
    }
    handing_over_ = false;
    if (queue_.empty()) empty_.notify_all();
  }

  AckRpc& rpc_;
  const int seconds_;
  const HandOver hand_over_;

  std::mutex mu_;
  std::condition_variable empty_;
  std::deque<std::unique_ptr<Waiting>> queue_;  // answers know them by their address
  bool handing_over_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
