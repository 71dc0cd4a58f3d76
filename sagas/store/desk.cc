#include "sagas/store/desk.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::sagas {
namespace {

using postgres::Executor;
using postgres::Result;
using postgres::Row;

constexpr char kRegister[] =
    "SELECT lockstep.saga_register($1, $2::int, $3, $4::jsonb, $5::text[], nullif($6::bigint, 0) * "
    "interval '1 ms', $7)";

constexpr char kDefinitions[] = R"sql(
SELECT d.body, d.hash, d.registered_by, d.registered_at,
       (SELECT count(*) FROM lockstep.saga_work w JOIN lockstep.sagas s ON s.id = w.saga
         WHERE w.definition = d.name AND s.version = d.version) AS open
FROM lockstep.saga_definitions d WHERE $1 IN ('', d.name) ORDER BY d.name, d.version)sql";

constexpr char kDefinition[] = R"sql(
SELECT body FROM lockstep.saga_definitions WHERE name = $1 AND $2::int IN (0, version)
ORDER BY version DESC LIMIT 1)sql";

constexpr char kActAs[] = "SELECT set_config('lockstep.saga_actor', $1, false)";
constexpr char kStart[] =
    "SELECT lockstep.saga_start($1, $2::jsonb, $3, $4::bigint * interval '1 ms', $5, $6, $7)";
constexpr char kSignal[] = "SELECT lockstep.saga_signal($1::uuid, $2, $3, $4::jsonb)";

// $1 definition, $2 states, $3 tenant, $4 key, $5 dead, $6 quarantined, $7 after, $8 limit
constexpr char kList[] = R"sql(
SELECT {columns}
FROM lockstep.sagas s LEFT JOIN lockstep.saga_work w ON w.saga = s.id
WHERE $1 IN ('', s.definition) AND ($2::text[] = '{}' OR s.state = ANY ($2::text[]))
  AND ($3::text IS NULL OR s.tenant = $3) AND $4 IN ('', s.key)
  AND (NOT $5::boolean OR (s.dead_at IS NOT NULL AND s.quarantined_at IS NULL))
  AND (NOT $6::boolean OR (s.dead_at IS NOT NULL AND s.quarantined_at IS NOT NULL))
  AND ($7 = '' OR s.id < nullif($7, '')::uuid)
ORDER BY s.id DESC LIMIT $8::int)sql";

constexpr char kShow[] = R"sql(
SELECT {columns}
FROM lockstep.sagas s LEFT JOIN lockstep.saga_work w ON w.saga = s.id WHERE s.id = $1::uuid)sql";

constexpr char kAudit[] = R"sql(
SELECT a.at, s.name AS step, a.actor, a.role, a.action, a.from_state, a.to_state, a.attempts, a.note
FROM lockstep.saga_audit a LEFT JOIN lockstep.saga_steps s ON s.saga = a.saga AND s.step = a.step
WHERE a.saga = $1::uuid ORDER BY a.id LIMIT $2::int)sql";

constexpr char kCount[] = R"sql(
SELECT d.name AS definition, o.running, o.compensating, o.paused, e.dead, e.quarantined, o.due_for
FROM (SELECT DISTINCT name FROM lockstep.saga_definitions) d,
  LATERAL (SELECT count(*) FILTER (WHERE s.state = 'Running') AS running,
                  count(*) FILTER (WHERE s.state = 'Compensating') AS compensating,
                  count(*) FILTER (WHERE s.state = 'Paused') AS paused,
                  (extract(epoch FROM max(statement_timestamp() - w.run_at) FILTER (WHERE w.run_at < statement_timestamp()))
                    * 1000)::bigint AS due_for
             FROM lockstep.saga_work w JOIN lockstep.sagas s ON s.id = w.saga WHERE w.definition = d.name) o,
  LATERAL (SELECT count(*) FILTER (WHERE s.quarantined_at IS NULL) AS dead,
                  count(*) FILTER (WHERE s.quarantined_at IS NOT NULL) AS quarantined
             FROM lockstep.sagas s WHERE s.dead_at IS NOT NULL AND s.definition = d.name) e
ORDER BY d.name)sql";

// By the narrow indexes of those that are open or dead: the many that have ended cost nothing.
constexpr char kWaiting[] = R"sql(
SELECT {columns}
FROM lockstep.sagas s LEFT JOIN lockstep.saga_work w ON w.saga = s.id
WHERE s.id = ANY (ARRAY(
  (SELECT d.id FROM lockstep.sagas d WHERE d.dead_at IS NOT NULL AND d.quarantined_at IS NULL
    ORDER BY d.dead_at DESC LIMIT $1::int)
  UNION ALL
  (SELECT p.id FROM lockstep.saga_work q JOIN lockstep.sagas p ON p.id = q.saga WHERE p.state = 'Paused'
    ORDER BY p.id DESC LIMIT $1::int)))
ORDER BY s.dead_at IS NULL, s.pause_asked, s.id DESC)sql";

constexpr char kClean[] =
    "SELECT lockstep.saga_clean($1::bigint * interval '1 ms', $2::int, nullif($3::bigint, 0) * "
    "interval '1 ms')";
constexpr char kRights[] = "SELECT lockstep.saga_{function}($1::regrole)";

std::string WithColumns(std::string_view sql) {
  return postgres::FillNames(sql, {{"columns", kSagaColumns}});
}

// In the words of the database's function, as what it is. A missing schema, function or table is a
// database that was never migrated.
absl::Status Explain(const absl::Status& status) {
  const std::string state = postgres::SqlState(status);
  if (state == "3F000" || state == "42883" || state == "42P01") {
    return FailedPrecondition("this database has no sagas: run lockstepctl migrate up --set saga");
  }
  std::string words(MessageOf(status));
  for (const std::string_view prefix : {"ERROR:  ", "sagas: "}) {
    if (words.starts_with(prefix)) words = words.substr(prefix.size());
  }
  if (state == "LS004" || state == "LS006") return FailedPrecondition("{}", words);
  if (state == "P0002") return NotFound("{}", words);
  if (state == "22023") return InvalidArgument("{}", words);
  return status;
}

absl::StatusOr<std::vector<StoredSaga>> Listed(const absl::StatusOr<postgres::Result>& rows) {
  if (!rows.ok()) return Explain(rows.status());
  std::vector<StoredSaga> list;
  for (const Row row : *rows) {
    ASSIGN_OR_RETURN(StoredSaga saga, ReadSaga(row));
    list.push_back(std::move(saga));
  }
  return list;
}

// An id that is none must not be the database's error.
absl::Status CheckId(const std::string& id) {
  bool ok = id.size() == 36;
  for (size_t i = 0; ok && i < id.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    ok = dash ? id[i] == '-' : std::isxdigit(static_cast<unsigned char>(id[i])) != 0;
  }
  if (ok) return absl::OkStatus();
  return InvalidArgument("'{}' is no saga's id: lockstepctl saga list shows them", id);
}

// One of the operators' functions.
absl::StatusOr<std::string> Run(Executor& session, const Order& order, const std::string& call,
                                const std::optional<std::string>& more) {
  RETURN_IF_ERROR(CheckId(order.id));
  const auto done =
      session.Execute("SELECT lockstep." + call, order.id, order.actor,
                      order.note.empty() ? std::nullopt : std::optional(order.note), more);
  if (!done.ok()) return Explain(done.status());
  return std::string(done->Text(0, 0));
}

absl::StatusOr<std::string> Run(Executor& session, const Order& order, const char* function) {
  RETURN_IF_ERROR(CheckId(order.id));
  const auto done =
      session.Execute(fmt::format("SELECT lockstep.{}($1::uuid, $2, $3)", function), order.id,
                      order.actor, order.note.empty() ? std::nullopt : std::optional(order.note));
  if (!done.ok()) return Explain(done.status());
  return std::string(done->Text(0, 0));
}

absl::StatusOr<Definition> ReadDefinition(std::string_view body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  return Definition::FromJson(json);
}

}  // namespace

absl::Status ActAs(Executor& session, const std::string& actor) {
  return session.Execute(kActAs, actor).status();
}

absl::StatusOr<bool> Register(Executor& session, const Definition& definition,
                              const std::string& actor) {
  RETURN_IF_ERROR(definition.Validate());
  postgres::Array steps;
  for (const Step& step : definition.steps) steps.Add(step.name);
  const auto made =
      session.Execute(kRegister, definition.name, definition.version, definition.Hash(),
                      definition.ToJson().dump(), steps, definition.timeout, actor);
  if (!made.ok()) return Explain(made.status());
  return made->Bool(0, 0);
}

absl::StatusOr<std::vector<Registered>> ListDefinitions(Executor& session,
                                                        const std::string& name) {
  const auto rows = session.Execute(kDefinitions, name);
  if (!rows.ok()) return Explain(rows.status());
  std::vector<Registered> list;
  for (const Row row : *rows) {
    ASSIGN_OR_RETURN(Definition definition, ReadDefinition(row.Text("body")));
    list.push_back({std::move(definition), row.String("hash"), row.String("registered_by"),
                    row.Time("registered_at"), row.Int("open")});
  }
  return list;
}

absl::StatusOr<Definition> GetDefinition(Executor& session, const std::string& name, int version) {
  const auto rows = session.Execute(kDefinition, name, version);
  if (!rows.ok()) return Explain(rows.status());
  if (rows->empty()) {
    return NotFound("no saga {}{} is registered: lockstepctl saga register FILE", name,
                    version == 0 ? "" : fmt::format(" of version {}", version));
  }
  return ReadDefinition(rows->Text(0, 0));
}

absl::StatusOr<std::string> StartSaga(Executor& session, const NewSaga& saga) {
  const auto started = session.Execute(kStart, saga.definition, saga.input.dump(), saga.tenant,
                                       saga.ttl, saga.key, saga.traceparent, saga.tracestate);
  if (!started.ok()) return Explain(started.status());
  return std::string(started->Text(0, 0));
}

absl::StatusOr<bool> SignalSaga(Executor& session, const std::string& id, const std::string& step,
                                bool succeeded, const Json& result) {
  RETURN_IF_ERROR(CheckId(id));
  const auto taken =
      session.Execute(kSignal, id, step, succeeded ? "succeeded" : "failed",
                      result.is_null() ? std::nullopt : std::optional(result.dump()));
  if (!taken.ok()) return Explain(taken.status());
  return taken->Bool(0, 0);
}

absl::StatusOr<std::vector<StoredSaga>> ListSagas(Executor& session, const SagaFilter& filter) {
  if (!filter.after.empty()) RETURN_IF_ERROR(CheckId(filter.after));
  postgres::Array states;
  for (const SagaState state : filter.states) states.Add(Name(state));
  return Listed(session.Execute(WithColumns(kList), filter.definition, states, filter.tenant,
                                filter.key, filter.dead, filter.quarantined, filter.after,
                                filter.limit));
}

absl::StatusOr<std::vector<StoredSaga>> WaitingSagas(Executor& session, int at_most) {
  return Listed(session.Execute(WithColumns(kWaiting), at_most));
}

absl::StatusOr<StoredSaga> ShowSaga(Executor& session, const std::string& id) {
  RETURN_IF_ERROR(CheckId(id));
  const auto rows = session.Execute(WithColumns(kShow), id);
  if (!rows.ok()) return Explain(rows.status());
  if (rows->empty()) return NotFound("there is no saga {}: lockstepctl saga list shows them", id);
  return ReadSaga((*rows)[0]);
}

absl::StatusOr<std::vector<SagaAudit>> AuditOf(Executor& session, const std::string& id,
                                               int at_most) {
  RETURN_IF_ERROR(CheckId(id));
  const auto rows = session.Execute(kAudit, id, at_most);
  if (!rows.ok()) return Explain(rows.status());
  std::vector<SagaAudit> audit;
  for (const Row row : *rows) {
    SagaAudit& entry = audit.emplace_back();
    entry = {row.Time("at"),         row.String("step"),   row.String("actor"),
             row.String("role"),     row.String("action"), row.String("from_state"),
             row.String("to_state"), row.String("note"),   std::nullopt};
    if (const auto attempts = row.OptionalInt("attempts")) {
      entry.attempts = static_cast<int>(*attempts);
    }
  }
  return audit;
}

absl::StatusOr<std::string> PauseSaga(Executor& session, const Order& order) {
  return Run(session, order, "saga_pause");
}
absl::StatusOr<std::string> ResumeSaga(Executor& session, const Order& order) {
  return Run(session, order, "saga_resume");
}
absl::StatusOr<std::string> CancelSaga(Executor& session, const Order& order) {
  return Run(session, order, "saga_cancel");
}
absl::StatusOr<std::string> CompensateSaga(Executor& session, const Order& order) {
  return Run(session, order, "saga_compensate");
}
absl::StatusOr<std::string> SkipStep(Executor& session, const Order& order,
                                     const std::string& step) {
  return Run(session, order, "saga_skip($1::uuid, $4, $2, $3)", step);
}
absl::StatusOr<std::string> RetryStep(Executor& session, const Order& order,
                                      const std::string& step) {
  return Run(session, order, "saga_retry($1::uuid, $4, $2, $3)",
             step.empty() ? std::nullopt : std::optional(step));
}
absl::StatusOr<std::string> ReplaySaga(Executor& session, const Order& order, ReplayInto into) {
  return Run(session, order, "saga_replay($1::uuid, $4, $2, $3)",
             into == ReplayInto::kFailedStep ? "from_step" : "compensation");
}

absl::StatusOr<bool> QuarantineSaga(Executor& session, const Order& order, bool release) {
  const auto changed = Run(session, order, "saga_quarantine($1::uuid, $2, $3, $4::boolean)",
                           release ? "true" : "false");
  if (!changed.ok()) return changed.status();
  return *changed == "t";
}

absl::StatusOr<std::vector<SagaCounts>> CountSagas(Executor& session) {
  const auto rows = session.Execute(kCount);
  if (!rows.ok()) return Explain(rows.status());
  std::vector<SagaCounts> counts;
  for (const Row row : *rows) {
    counts.push_back({row.String("definition"), row.Int("running"), row.Int("compensating"),
                      row.Int("paused"), row.Int("dead"), row.Int("quarantined"),
                      Millis(row.Int("due_for"))});
  }
  return counts;
}

absl::StatusOr<int64_t> CleanSagas(Executor& session, Millis older_than, int at_most,
                                   Millis dead_older_than) {
  int64_t gone = 0;
  while (true) {
    const auto batch = session.Number(kClean, older_than, at_most, dead_older_than);
    if (!batch.ok()) return Explain(batch.status());
    gone += *batch;
    if (*batch < at_most) return gone;
  }
}

absl::Status ChangeSagaRights(Executor& session, const std::string& function,
                              const std::string& role) {
  return session.Run(postgres::FillNames(kRights, {{"function", function}}),
                     postgres::QuoteIdentifier(role));
}

}  // namespace lockstep::sagas
