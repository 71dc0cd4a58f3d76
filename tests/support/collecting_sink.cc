#include "tests/support/collecting_sink.h"

namespace lockstep::testing {

using pubsub::AckToken;
using pubsub::Delivery;

void CollectingSink::OnDeliveries(std::vector<Delivery> deliveries) {
  if (on_batch) on_batch(deliveries);
  {
    std::scoped_lock lock(mu_);
    deliveries_.insert(deliveries_.end(), deliveries.begin(), deliveries.end());
    changed_.notify_all();
  }
  if (after_batch) after_batch(deliveries);
}

void CollectingSink::OnLeaseLost(std::vector<AckToken> tokens) {
  std::scoped_lock lock(mu_);
  for (AckToken& token : tokens) lost_.push_back(std::move(token));
  changed_.notify_all();
}

void CollectingSink::OnStreamState(const absl::Status& state) {
  std::scoped_lock lock(mu_);
  states_.push_back(state);
  changed_.notify_all();
}

std::vector<Delivery> CollectingSink::deliveries() const {
  std::scoped_lock lock(mu_);
  return deliveries_;
}

std::vector<AckToken> CollectingSink::lost() const {
  std::scoped_lock lock(mu_);
  return lost_;
}

std::vector<absl::Status> CollectingSink::states() const {
  std::scoped_lock lock(mu_);
  return states_;
}

size_t CollectingSink::count() const {
  std::scoped_lock lock(mu_);
  return deliveries_.size();
}

std::map<std::string, std::vector<std::string>> CollectingSink::by_key() const {
  std::scoped_lock lock(mu_);
  std::map<std::string, std::vector<std::string>> keys;
  for (const Delivery& delivery : deliveries_) {
    keys[delivery.message.ordering_key].push_back(delivery.message.data);
  }
  return keys;
}

std::vector<std::string> CollectingSink::data() const {
  std::scoped_lock lock(mu_);
  std::vector<std::string> all;
  for (const Delivery& delivery : deliveries_) all.push_back(delivery.message.data);
  return all;
}

std::vector<AckToken> CollectingSink::tokens() const {
  std::scoped_lock lock(mu_);
  std::vector<AckToken> all;
  for (const Delivery& delivery : deliveries_) all.push_back(delivery.token);
  return all;
}

bool CollectingSink::AwaitCount(size_t count, Millis at_most) const {
  std::unique_lock lock(mu_);
  return changed_.wait_for(lock, at_most, [&] { return deliveries_.size() >= count; });
}

bool CollectingSink::Await(const std::function<bool()>& condition, Millis at_most) const {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::unique_lock lock(mu_);
    // The condition may hang on something that is not ours: look again now and then.
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace lockstep::testing
