#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "sagas/definition/definition.h"
#include "sagas/engine/attempt.h"
#include "sagas/engine/places.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {

// What came of a call that was under way.
struct CallAnswer {
  int step = 0;
  int64_t call = 0;  // unique in this process: an answer that nobody waits for is told by it
  Outcome outcome;
};

// A saga in hand: under a lease of this process's. At any time one worker at most has it.
struct Held {
  // A call under way.
  struct Here {
    int64_t call = 0;
    std::stop_source stop;
    SteadyTime began{};
    Place tag;  // among those of its concurrency_tag
  };

  explicit Held(LoadedSaga loaded)
      : id(loaded.saga.id),
        token(loaded.lease.token),
        saga(std::move(loaded.saga)),
        lease(std::move(loaded.lease)),
        read_at(loaded.now) {}

  const std::string id, token;

  // Of the worker that has it.
  StoredSaga saga;
  Lease lease;
  WallTime read_at;                                   // by the database's clock,
  SteadyTime read_steady = Clock::System().Steady();  // and by ours
  bool stale = false;                                 // to be read again
  std::shared_ptr<const Definition> definition;
  std::map<int, Here> here;  // by step
  std::vector<CallAnswer> unsaved;
  std::map<int, int> later;  // tries in a row that were nobody's fault, by step

  WallTime Now() const {
    return read_at +
           std::chrono::duration_cast<WallTime::duration>(Clock::System().Steady() - read_steady);
  }
  std::set<int> StepsHere() const;
  // Its call is not waited for any more, if there is one.
  void Forget(int step);

 private:
  friend class Hand;
  // Hand's, under its lock.
  bool queued = false, busy = false, lost = false, look = false;
  int seen_revision = 0;
  std::vector<CallAnswer> answers;
  SteadyTime lease_until{};
  std::optional<SteadyTime> look_at;
};

// The concurrency_tag of a step. REQUIRES: the definition is known.
std::string TagOf(const Held& held, int step);

// The sagas in hand of one engine, and the queue of those for which there is something to do. Safe
// from any thread.
class Hand {
 public:
  // `wake`: the dispatcher is to look: there is room again, or it has less queued than `low`.
  Hand(size_t low, std::function<void()> wake) : low_(low), wake_(std::move(wake)) {}

  void Add(const std::shared_ptr<Held>& held, SteadyTime lease_until);
  // Somebody has changed it, if it is in hand: read it again.
  void Touch(const std::string& id);
  // There may be something to do for it.
  void Queue(const std::string& id);
  void Answer(const std::string& id, CallAnswer answer);

  // For workers -----------------------------------------------------------------------------------

  // The next that has something to do; null = stopped.
  std::shared_ptr<Held> Take(const std::stop_token& stop);
  struct News {
    std::vector<CallAnswer> answers;
    bool lost = false;
    bool look = false;  // read it again
  };
  News TakeNews(Held& held);
  // It was read, with this revision.
  void Seen(Held& held);
  // Nothing to do until there are news, or `look_at`.
  void Rest(const std::shared_ptr<Held>& held, std::optional<SteadyTime> look_at);
  void Drop(const std::shared_ptr<Held>& held);
  bool LeaseHolds(const Held& held, Millis margin) const;

  // For the dispatcher ----------------------------------------------------------------------------

  std::vector<Lease> Leases() const;
  // Of those that were asked, these are ours still.
  void Renewed(const std::vector<Lease>& asked, const std::vector<Renewal>& ours, SteadyTime until);
  // Queues those whose time has come; answers when the next one's comes.
  std::optional<SteadyTime> QueueDue(SteadyTime now);
  void QueueAll();
  size_t size() const;
  size_t queued() const;
  std::map<std::string, int> CountByDefinition() const;
  // At the very end.
  void Clear();

 private:
  void QueueLocked(const std::shared_ptr<Held>& held);

  const size_t low_;
  const std::function<void()> wake_;
  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  std::map<std::string, std::shared_ptr<Held>> held_;
  std::deque<std::shared_ptr<Held>> ready_;
};

}  // namespace lockstep::sagas
