#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "sagas/definition/definition.h"
#include "sagas/store/saga_record.h"

namespace lockstep::postgres {
class Connection;
class Executor;
}  // namespace lockstep::postgres

// What people do with definitions and sagas, on the connection's thread; each commits by itself.
// A wrong moment ("it is Completed: there is nothing to pause") is FAILED_PRECONDITION, a saga,
// step or definition that is not there NOT_FOUND, bad values INVALID_ARGUMENT.
namespace lockstep::sagas {

// Who the session is for the audit, in what names nobody itself: a start, a signal.
absl::Status ActAs(postgres::Executor& session, const std::string& actor);

// Definitions ------------------------------------------------------------------------------------

// True = it is new; false = the same was there. FAILED_PRECONDITION: this version is registered
// with another content.
absl::StatusOr<bool> Register(postgres::Executor& session, const Definition& definition,
                              const std::string& actor);

struct Registered {
  Definition definition;
  std::string hash;
  std::string registered_by;
  WallTime registered_at{};
  int64_t open = 0;  // sagas of it that have not ended
};
// All versions, by name and version; of one name, or of all (empty).
absl::StatusOr<std::vector<Registered>> ListDefinitions(postgres::Executor& session,
                                                        const std::string& name = "");
// version 0 = the newest. NOT_FOUND.
absl::StatusOr<Definition> GetDefinition(postgres::Executor& session, const std::string& name,
                                         int version = 0);

// Sagas -------------------------------------------------------------------------------------------

struct NewSaga {
  std::string definition;
  Json input;
  std::optional<std::string> tenant;
  std::optional<std::string> key;  // the same again answers the same saga
  std::optional<Millis> ttl;       // in place of the definition's timeout
  std::optional<std::string> traceparent, tracestate;
};
// Its id. In a transaction: it begins if and when that commits.
absl::StatusOr<std::string> StartSaga(postgres::Executor& session, const NewSaga& saga);

// False = it came too late.
absl::StatusOr<bool> SignalSaga(postgres::Executor& session, const std::string& id,
                                const std::string& step, bool succeeded, const Json& result);

struct SagaFilter {
  std::string definition;             // empty = any
  std::vector<SagaState> states;      // empty = any
  std::optional<std::string> tenant;  // nullopt = of all
  std::string key;                    // empty = any
  bool dead = false;                  // dead ones alone; those in quarantine are not among them
  bool quarantined = false;           // those in quarantine alone
  std::string after;                  // an id: older ones than that; empty = from the youngest
  int limit = 100;
};
// The youngest first, with their steps.
absl::StatusOr<std::vector<StoredSaga>> ListSagas(postgres::Executor& session,
                                                  const SagaFilter& filter);
absl::StatusOr<StoredSaga> ShowSaga(postgres::Executor& session, const std::string& id);

struct SagaAudit {
  WallTime at{};
  std::string step;  // its name; empty = the saga itself
  std::string actor, role, action, from, to, note;
  std::optional<int> attempts;
};
// In the order of time.
absl::StatusOr<std::vector<SagaAudit>> AuditOf(postgres::Executor& session, const std::string& id,
                                               int at_most = 1'000);

// Who asks, and why; both stand in the audit.
struct Order {
  std::string id, actor, note;
};
// Each answers what there was before, in words for people (a state, the steps' names).
absl::StatusOr<std::string> PauseSaga(postgres::Executor& session, const Order& order);
absl::StatusOr<std::string> ResumeSaga(postgres::Executor& session, const Order& order);
absl::StatusOr<std::string> CancelSaga(postgres::Executor& session, const Order& order);
absl::StatusOr<std::string> CompensateSaga(postgres::Executor& session, const Order& order);
absl::StatusOr<std::string> SkipStep(postgres::Executor& session, const Order& order,
                                     const std::string& step);
// Empty = whichever is in doubt or waits for its next try; a dead saga goes on.
absl::StatusOr<std::string> RetryStep(postgres::Executor& session, const Order& order,
                                      const std::string& step = "");
enum class ReplayInto { kFailedStep, kCompensation };
absl::StatusOr<std::string> ReplaySaga(postgres::Executor& session, const Order& order,
                                       ReplayInto into);
// False = it was so already.
absl::StatusOr<bool> QuarantineSaga(postgres::Executor& session, const Order& order,
                                    bool release = false);

// How many sagas there are of each definition: open by state, and dead. For gauges and pages.
// `due_for`: since when nobody has taken the one that has been due for longest; 0 = none is due.
struct SagaCounts {
  std::string definition;
  int64_t running = 0, compensating = 0, paused = 0, dead = 0, quarantined = 0;
  Millis due_for{0};
};
absl::StatusOr<std::vector<SagaCounts>> CountSagas(postgres::Executor& session);

// Those that wait for a person, so many of each at most, the youngest first, with their steps: dead
// ones, then paused ones, those that somebody has paused last.
absl::StatusOr<std::vector<StoredSaga>> WaitingSagas(postgres::Executor& session, int at_most);

// Deletes what ended so long ago, so many sagas a transaction, until nothing is left; answers how
// many. `dead_older_than` 0 = dead ones stay.
absl::StatusOr<int64_t> CleanSagas(postgres::Executor& session, Millis older_than, int at_most,
                                   Millis dead_older_than = Millis(0));

// `function`: grant_starter, grant_reader, grant_operator, grant_orchestrator or revoke_rights.
absl::Status ChangeSagaRights(postgres::Executor& session, const std::string& function,
                              const std::string& role);

}  // namespace lockstep::sagas
