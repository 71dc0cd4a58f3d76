#include "sagas/engine/hand.h"

#include <algorithm>

namespace lockstep::sagas {

std::set<int> Held::StepsHere() const {
  std::set<int> steps;
  for (const auto& [step, call] : here) steps.insert(step);
  return steps;
}

void Held::Forget(int step) {
  const auto call = here.find(step);
  if (call == here.end()) return;
  call->second.stop.request_stop();
  here.erase(call);
}

std::string TagOf(const Held& held, int step) {
  return held.definition->steps[static_cast<size_t>(step)].concurrency_tag;
}

void Hand::QueueLocked(const std::shared_ptr<Held>& held) {
  held->look_at.reset();
  if (held->busy || held->queued) return;
  held->queued = true;
  ready_.push_back(held);
  changed_.notify_one();
}

void Hand::Add(const std::shared_ptr<Held>& held, SteadyTime lease_until) {
  const std::scoped_lock lock(mu_);
  // An older one of the same saga, whose lease was lost, ends by itself.
  std::shared_ptr<Held>& place = held_[held->id];
  if (place != nullptr) {
    place->lost = true;
    QueueLocked(place);
  }
  place = held;
  held->lease_until = lease_until;
  held->seen_revision = held->lease.revision;
  QueueLocked(held);
}

void Hand::Touch(const std::string& id) {
  const std::scoped_lock lock(mu_);
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  found->second->look = true;
  QueueLocked(found->second);
}

void Hand::Queue(const std::string& id) {
  const std::scoped_lock lock(mu_);
  const auto found = held_.find(id);
  if (found != held_.end()) QueueLocked(found->second);
}

void Hand::Answer(const std::string& id, CallAnswer answer) {
  const std::scoped_lock lock(mu_);
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  found->second->answers.push_back(std::move(answer));
  QueueLocked(found->second);
}

std::shared_ptr<Held> Hand::Take(const std::stop_token& stop) {
  std::shared_ptr<Held> next;
  bool low = false;
  {
    std::unique_lock lock(mu_);
    if (!changed_.wait(lock, stop, [this] { return !ready_.empty(); })) return nullptr;
    if (stop.stop_requested()) return nullptr;
    next = std::move(ready_.front());
    ready_.pop_front();
    next->queued = false;
    next->busy = true;
    low = ready_.size() + 1 == low_;
  }
  if (low) wake_();
  return next;
}

Hand::News Hand::TakeNews(Held& held) {
  const std::scoped_lock lock(mu_);
  News news{.answers = std::exchange(held.answers, {}),
            .lost = held.lost,
            .look = std::exchange(held.look, false)};
  return news;
}

void Hand::Seen(Held& held) {
  const std::scoped_lock lock(mu_);
  held.seen_revision = held.lease.revision;
}

void Hand::Rest(const std::shared_ptr<Held>& held, std::optional<SteadyTime> look_at) {
  {
    const std::scoped_lock lock(mu_);
    held->busy = false;
    held->look_at = look_at;
    if (held->lost || held->look || !held->answers.empty()) QueueLocked(held);
  }
  if (look_at) wake_();
}

void Hand::Drop(const std::shared_ptr<Held>& held) {
  {
    const std::scoped_lock lock(mu_);
    held->busy = false;
    const auto found = held_.find(held->id);
    if (found != held_.end() && found->second == held) held_.erase(found);
  }
  wake_();
}

bool Hand::LeaseHolds(const Held& held, Millis margin) const {
  const std::scoped_lock lock(mu_);
  return !held.lost && Clock::System().Steady() + margin < held.lease_until;
}

std::vector<Lease> Hand::Leases() const {
  const std::scoped_lock lock(mu_);
  std::vector<Lease> leases;
  for (const auto& [id, held] : held_) {
    if (!held->lost) leases.push_back({id, held->token, held->seen_revision});
  }
  return leases;
}

void Hand::Renewed(const std::vector<Lease>& asked, const std::vector<Renewal>& ours,
                   SteadyTime until) {
  std::map<std::string, const Renewal*> renewals;
  for (const Renewal& renewal : ours) renewals[renewal.lease.saga] = &renewal;
  const std::scoped_lock lock(mu_);
  for (const Lease& lease : asked) {
    const auto found = held_.find(lease.saga);
    if (found == held_.end() || found->second->token != lease.token) continue;
    Held& held = *found->second;
    const auto renewal = renewals.find(lease.saga);
    if (renewal == renewals.end()) {
      // One that its worker ends right now is not there either; it will see for itself.
      if (held.busy) continue;
      held.lost = true;
      QueueLocked(found->second);
      continue;
    }
    if (renewal->second->renewed) held.lease_until = until;
    if (renewal->second->lease.revision != held.seen_revision) {
      held.look = true;
      QueueLocked(found->second);
    }
  }
}

std::optional<SteadyTime> Hand::QueueDue(SteadyTime now) {
  const std::scoped_lock lock(mu_);
  std::optional<SteadyTime> next;
  for (const auto& [id, held] : held_) {
    if (!held->look_at) continue;
    if (*held->look_at <= now) {
      QueueLocked(held);
    } else if (!next || *held->look_at < *next) {
      next = held->look_at;
    }
  }
  return next;
}

void Hand::QueueAll() {
  const std::scoped_lock lock(mu_);
  for (const auto& [id, held] : held_) QueueLocked(held);
}

size_t Hand::size() const {
  const std::scoped_lock lock(mu_);
  return held_.size();
}

size_t Hand::queued() const {
  const std::scoped_lock lock(mu_);
  return ready_.size();
}

std::map<std::string, int> Hand::CountByDefinition() const {
  const std::scoped_lock lock(mu_);
  std::map<std::string, int> counts;
  for (const auto& [id, held] : held_) ++counts[held->saga.definition];
  return counts;
}

void Hand::Clear() {
  // What ends gives back places, of which we are told.
  std::map<std::string, std::shared_ptr<Held>> held;
  std::deque<std::shared_ptr<Held>> ready;
  const std::scoped_lock lock(mu_);
  held.swap(held_);
  ready.swap(ready_);
}

}  // namespace lockstep::sagas
