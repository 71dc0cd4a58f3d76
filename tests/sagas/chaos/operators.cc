#include "tests/sagas/chaos/operators.h"

#include <algorithm>

#include "tests/chaos/system/now.h"

namespace lockstep::sagachaos {
namespace {

constexpr int kAtATime = 2;
constexpr int kTries = 40;

}  // namespace

void Operators::Look(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const uint64_t luck = random_() % 100;
    const SteadyTime at = chaos::Now() + Millis(random_() % 1'500);
    if (luck < 4) orders_.push_back({.what = "cancel", .id = id, .at = at});
    if (luck >= 4 && luck < 7) orders_.push_back({.what = "pause", .id = id, .at = at});
  }
}

bool Operators::Answered(Order& order, int status) {
  if (order.what == "resume") {
    // Postgres may be away. One that has ended or waits for a person can't be resumed.
    order.at = chaos::Now() + Millis(200);
    return status == 0 || ++order.tries == kTries;
  }
  if (status != 0) {
    // It has ended, or nobody knows: what was paused without an answer must go on, too.
    ++refused_;
    if (order.what == "cancel") return true;
  }
  if (order.what == "cancel") return true;
  ++paused_;
  order.what = "resume";
  order.at = chaos::Now() + Millis(random_() % 2'000);
  return false;
}

void Operators::Tick() {
  int under_way = 0;
  for (auto order = orders_.begin(); order != orders_.end();) {
    if (order->child == nullptr) {
      ++order;
      continue;
    }
    const auto status = order->child->Ended();
    if (!status) {
      ++under_way;
      ++order;
      continue;
    }
    order->child.reset();
    order = Answered(*order, *status) ? orders_.erase(order) : std::next(order);
  }
  for (Order& order : orders_) {
    if (order.child != nullptr || order.at > chaos::Now() || under_way >= kAtATime) continue;
    ++under_way;
    if (order.what == "cancel") cancelled_.insert(order.id);
    order.child = world_.Control({"saga", order.what, order.id, "--reason", "chaos"});
  }
}

void Operators::Finish() {
  std::erase_if(
      orders_, [](const Order& order) { return order.child == nullptr && order.what != "resume"; });
  for (Order& order : orders_) order.at = std::min(order.at, chaos::Now());
}

}  // namespace lockstep::sagachaos
