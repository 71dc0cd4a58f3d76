#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "sagas/store/saga_record.h"

namespace lockstep::postgres {
class Connection;
class Executor;
class Transaction;
}  // namespace lockstep::postgres

// What orchestrators ask and write: lockstep.saga_work, and the sagas that they hold.
namespace lockstep::sagas {

// A saga under a lease. Whoever writes shows it; `revision` is of the changes by others that its
// holder has seen.
struct Lease {
  std::string saga;
  std::string token;
  int revision = 0;

  friend bool operator==(const Lease&, const Lease&) = default;
};

struct Claimed {
  Lease lease;
  enum class News { kNone, kStarted, kReplayed } news = News::kNone;
};

// A lease that is the caller's still, with its revision now. `renewed`: it holds for longer, too;
// else somebody has the row locked, and it ends when it did before.
struct Renewal {
  Lease lease;
  bool renewed = false;
};

// Of a session that only claims and renews: losing one of these costs a repetition, so its commits
// need not be durable.
class LeaseStore {
 public:
  explicit LeaseStore(postgres::Connection& session) : session_(session) {}

  // What is due, at most so many. `room`: of definitions that may have fewer.
  absl::StatusOr<std::vector<Claimed>> Claim(const std::string& owner, Millis lease, int at_most,
                                             const std::map<std::string, int>& room);
  // Those that are still the caller's.
  absl::StatusOr<std::vector<Renewal>> Renew(const std::vector<Lease>& leases, Millis lease);
  // At the end: others go on at once.
  absl::Status ReleaseAll(const std::vector<Lease>& leases);

  // The lock of a sleeper, for whom writers notify.
  enum class WakeLock {
    kTaken,
    kWriter,   // somebody writes just now, and will not notify
    kSleeper,  // another one sleeps: writers notify all
  };
  absl::StatusOr<WakeLock> TryWakeLock();
  absl::Status WakeUnlock();

 private:
  postgres::Connection& session_;
};

// A saga as the holder found it, by the database's clock.
struct LoadedSaga {
  StoredSaga saga;
  Lease lease;
  WallTime now{};
};

// Of one worker's session. Each write is guarded by the lease: kAborted = it is another's by now,
// or somebody has changed the saga; nothing was written. See IsLost.
class WorkStore {
 public:
  explicit WorkStore(postgres::Connection& session);
  ~WorkStore();

  // Those that are still the caller's.
  absl::StatusOr<std::vector<LoadedSaga>> Load(const std::vector<Lease>& leases);

  // A transaction that begins with the guard.
  absl::StatusOr<postgres::Transaction> Hold(const Lease& lease);

  // Within it. `was`: the state that is stored; the other fields are written as they are.
  static absl::Status Save(postgres::Transaction& held, const std::string& saga,
                           const StoredStep& step, StepState was);
  static absl::Status Save(postgres::Transaction& held, const std::string& saga,
                           const SagaChange& change);
  static absl::StatusOr<int64_t> NextVersion(postgres::Transaction& held, const std::string& saga);

  // The whole of an sql: step as one statement, which commits by itself: guard, call, save.
  // `function`: its name, quoted. `limit`: of its time; 0 = the session's. `ends`: the state that
  // the saga ends in with it. Answers the result.
  absl::StatusOr<Json> CallAndSave(const Lease& lease, const std::string& function,
                                   const std::string& request, const StoredStep& step,
                                   StepState was, std::optional<SagaState> ends, Millis limit);

  // False = look once more: it is another's by now, or was changed. nullopt = when it is woken.
  absl::StatusOr<bool> Release(const Lease& lease, std::optional<WallTime> run_at);

 private:
  struct Call;  // a prepared statement of its own for each function
  const Call& CallOf(const std::string& function);

  postgres::Connection& session_;
  std::map<std::string, std::unique_ptr<Call>> calls_;
};

// Whether a write was refused because the lease is not the caller's (any longer).
bool IsLost(const absl::Status& status);

}  // namespace lockstep::sagas
