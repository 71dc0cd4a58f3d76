#include "pubsub/grpc/receive/receipts.h"

#include <algorithm>
#include <utility>

namespace lockstep::pubsub::grpc_client {
namespace {

// The shortest lease has ten seconds: half of it is left when nobody answers.
constexpr Millis kTimeout{5'000};

// The ids, in requests within the limit.
std::vector<std::vector<std::string>> RequestsFor(const std::vector<Delivery>& deliveries) {
  std::vector<std::vector<std::string>> requests;
  AckRequestSize size;
  for (const Delivery& delivery : deliveries) {
    const std::string& id = delivery.token.value();
    if (requests.empty() || !size.Add(id)) {
      requests.emplace_back();
      size = {};
      size.Add(id);
    }
    requests.back().push_back(id);
  }
  return requests;
}

}  // namespace

Receipts::Receipts(AckRpc& rpc, Millis ack_deadline, HandOver hand_over)
    : rpc_(rpc),
      seconds_(static_cast<int>(std::clamp<int64_t>(
          std::chrono::ceil<std::chrono::seconds>(ack_deadline).count(), 10, 600))),
      hand_over_(std::move(hand_over)) {}

void Receipts::Add(std::vector<Delivery> deliveries, bool confirm) {
  auto waiting = std::make_unique<Waiting>();
  waiting->deliveries = std::move(deliveries);
  waiting->received = std::chrono::steady_clock::now();
  std::vector<std::vector<std::string>> requests;
  if (confirm) requests = RequestsFor(waiting->deliveries);
  waiting->open = requests.size();
  Waiting& added = *waiting;
  {
    std::scoped_lock lock(mu_);
    if (confirm || !queue_.empty() || handing_over_) queue_.push_back(std::move(waiting));
  }
  // Nothing to wait for: several streams may do this side by side.
  if (waiting != nullptr) return hand_over_(Split(std::move(*waiting)));
  for (auto& ids : requests) {
    rpc_.ModifyDeadline(std::move(ids), seconds_, kTimeout,
                        [this, &added](const AckAnswer& answer) { OnAnswer(added, answer); });
  }
  if (!confirm) HandOverReady();
}

void Receipts::OnAnswer(Waiting& waiting, const AckAnswer& answer) {
  {
    std::scoped_lock lock(mu_);
    --waiting.open;
    // What failed for now, or without a name, is handed over: its ack will tell.
    for (const auto& [id, reason] : answer.failures) {
      if (reason.rfind("PERMANENT", 0) == 0) waiting.refused.insert(id);
    }
  }
  HandOverReady();
}

void Receipts::HandOverReady() {
  std::unique_lock lock(mu_);
  if (handing_over_) return;  // whoever does will see it
  handing_over_ = true;
  while (!queue_.empty() && queue_.front()->open == 0) {
    Waiting waiting = std::move(*queue_.front());
    queue_.pop_front();
    lock.unlock();
    hand_over_(Split(std::move(waiting)));
    lock.lock();
  }
  handing_over_ = false;
  if (queue_.empty()) empty_.notify_all();
}

Receipts::Batch Receipts::Split(Waiting waiting) {
  Batch batch;
  batch.received = waiting.received;
  if (waiting.refused.empty()) {
    batch.held = std::move(waiting.deliveries);
    return batch;
  }
  for (Delivery& delivery : waiting.deliveries) {
    auto& part = waiting.refused.contains(delivery.token.value()) ? batch.refused : batch.held;
    part.push_back(std::move(delivery));
  }
  return batch;
}

void Receipts::Flush(Millis at_most) {
  std::unique_lock lock(mu_);
  empty_.wait_for(lock, at_most, [this] { return queue_.empty() && !handing_over_; });
}

}  // namespace lockstep::pubsub::grpc_client
