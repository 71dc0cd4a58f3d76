#include "sagas/store/work_store.h"

#include <fmt/format.h>

#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::sagas {
namespace {

using postgres::Result;
using postgres::Row;
using postgres::Statement;

constexpr Statement kHold{"saga_hold", "SELECT lockstep.saga_hold($1::uuid, $2::uuid, $3::int)"};

// $1 saga, $2 step, $3 was, then the fields
constexpr Statement kSaveStep{"saga_save_step", R"sql(
SELECT lockstep.saga_save_step($1::uuid, $2::int, $3, $4, $5::boolean, $6::int, $7::int, $8::timestamptz, $9::timestamptz,
                               $10::boolean, $11::boolean, $12, $13, $14::jsonb))sql"};

constexpr Statement kSaveSaga{
    "saga_save", "SELECT lockstep.saga_save($1::uuid, $2, $3, $4, $5, $6::int, $7::boolean)"};

constexpr Statement kNextVersion{"saga_next_version",
                                 "SELECT lockstep.saga_next_version($1::uuid)"};

constexpr Statement kRelease{
    "saga_release", "SELECT lockstep.saga_release($1::uuid, $2::uuid, $3::int, $4::timestamptz)"};

constexpr Statement kLimit{"saga_limit", "SELECT set_config('statement_timeout', $1, true)"};

// $1 saga, $2 token, $3 revision; $4 step, $5 was, $6… the fields, $16 the request, $17 ends. The
// guard is asked before the function is called, for it decides whether there is a row to call it
// for.
constexpr char kCall[] = R"sql(
SELECT lockstep.saga_save_step($1::uuid, $4::int, $5, $6, $7::boolean, $8::int, $9::int, $10::timestamptz, $11::timestamptz,
                               $12::boolean, $13::boolean, $14, $15, {function}($16::jsonb)::jsonb, $17)::text AS result
FROM lockstep.saga_hold($1::uuid, $2::uuid, $3::int) AS held WHERE held)sql";

// $1 sagas, $2 tokens
const std::string& LoadSql() {
  static const std::string sql = fmt::format(R"sql(
SELECT {}, w.token, w.revision, clock_timestamp() AS now
FROM unnest($1::uuid[], $2::uuid[]) AS u (saga, token)
JOIN lockstep.saga_work w ON w.saga = u.saga AND w.token = u.token
JOIN lockstep.sagas s ON s.id = w.saga)sql",
                                             kSagaColumns);
  return sql;
}

// Not SQL's: no statement has failed.
absl::Status Lost(const Lease& lease) {
  return absl::AbortedError(
      fmt::format("the lease on the saga {} is another's by now, or it was changed", lease.saga));
}

std::optional<std::string> IfAny(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

void AddFields(postgres::Params& params, const StoredStep& step, StepState was) {
  params.Add(step.step)
      .Add(sagas::Name(was))
      .Add(sagas::Name(step.state))
      .Add(step.compensating)
      .Add(step.attempts)
      .Add(step.compensation_attempts)
      .Add(step.available_at)
      .Add(step.deadline)
      .Add(step.in_doubt)
      .Add(step.maybe_done)
      .Add(IfAny(step.last_error))
      .Add(IfAny(step.error_code));
}

}  // namespace

bool IsLost(const absl::Status& status) {
  return absl::IsAborted(status) && postgres::SqlState(status).empty();
}

// Only of its session: the names of prepared statements are.
struct WorkStore::Call {
  std::string name, sql;
};

WorkStore::WorkStore(postgres::Connection& session) : session_(session) {}
WorkStore::~WorkStore() = default;

const WorkStore::Call& WorkStore::CallOf(const std::string& function) {
  std::unique_ptr<Call>& call = calls_[function];
  if (call == nullptr) {
    call = std::make_unique<Call>(Call{fmt::format("saga_call_{}", calls_.size()),
                                       postgres::FillNames(kCall, {{"function", function}})});
  }
  return *call;
}

absl::StatusOr<std::vector<LoadedSaga>> WorkStore::Load(const std::vector<Lease>& leases) {
  postgres::Array sagas;
  postgres::Array tokens;
  for (const Lease& lease : leases) {
    sagas.AddPlain(lease.saga);
    tokens.AddPlain(lease.token);
  }
  const Statement load{"saga_load", LoadSql()};
  ASSIGN_OR_RETURN(const Result rows, session_.Execute(load, sagas, tokens));
  std::vector<LoadedSaga> loaded;
  for (const Row row : rows) {
    ASSIGN_OR_RETURN(StoredSaga saga, ReadSaga(row));
    Lease lease{saga.id, row.String("token"), static_cast<int>(row.Int("revision"))};
    loaded.push_back({std::move(saga), std::move(lease), row.Time("now")});
  }
  return loaded;
}

absl::StatusOr<postgres::Transaction> WorkStore::Hold(const Lease& lease) {
  postgres::Transaction transaction = session_.BeginLater();
  ASSIGN_OR_RETURN(const Result held,
                   transaction.Execute(kHold, lease.saga, lease.token, lease.revision));
  if (!held.Bool(0, 0)) return Lost(lease);
  return transaction;
}

absl::Status WorkStore::Save(postgres::Transaction& held, const std::string& saga,
                             const StoredStep& step, StepState was) {
  postgres::Params params(saga);
  AddFields(params, step, was);
  params.Add(step.result.is_null() ? std::nullopt : std::optional(step.result.dump()));
  return held.Run(kSaveStep, params);
}

absl::Status WorkStore::Save(postgres::Transaction& held, const std::string& saga,
                             const SagaChange& change) {
  return held.Run(kSaveSaga, saga, sagas::Name(change.state), IfAny(change.reason),
                  IfAny(change.error), IfAny(change.error_code), change.failed_step, change.dead);
}

absl::StatusOr<int64_t> WorkStore::NextVersion(postgres::Transaction& held,
                                               const std::string& saga) {
  return held.Number(kNextVersion, saga);
}

absl::StatusOr<Json> WorkStore::CallAndSave(const Lease& lease, const std::string& function,
                                            const std::string& request, const StoredStep& step,
                                            StepState was, std::optional<SagaState> ends,
                                            Millis limit) {
  const Call& call = CallOf(function);
  postgres::Params params(lease.saga, lease.token, lease.revision);
  AddFields(params, step, was);
  params.Add(request);
  params.Add(ends ? std::optional<std::string>(sagas::Name(*ends)) : std::nullopt);
  const Statement statement{call.name, call.sql};
  std::optional<Result> result;
  if (limit == Millis(0)) {
    ASSIGN_OR_RETURN(result, session_.Execute(statement, params));
  } else {
    postgres::Transaction transaction = session_.BeginLater();
    RETURN_IF_ERROR(transaction.Defer(kLimit, fmt::format("{}", limit.count())));
    ASSIGN_OR_RETURN(result, transaction.Execute(statement, params));
    if (!result->empty()) RETURN_IF_ERROR(transaction.Commit());
  }
  if (result->empty()) return Lost(lease);
  if (result->IsNull(0, 0)) return Json();
  return Json::parse(result->Text(0, 0));  // jsonb: it is JSON
}

absl::StatusOr<bool> WorkStore::Release(const Lease& lease, std::optional<WallTime> run_at) {
  ASSIGN_OR_RETURN(const Result released,
                   session_.Execute(kRelease, lease.saga, lease.token, lease.revision, run_at));
  return released.Bool(0, 0);
}

}  // namespace lockstep::sagas
