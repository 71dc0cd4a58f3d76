#include "projections/plan/function_check.h"

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::projections {
namespace {

// $1 schema, $2 name, $3 the state schema; where that is not known, an `event` of any will do.
constexpr std::string_view kFunctions = R"(
SELECT p.prokind::text AS kind, pg_get_function_identity_arguments(p.oid) AS arguments,
       p.pronargs = 1 AS one,
       p.pronargs - p.pronargdefaults <= 1 AND p.pronargs >= 1 AS takes_one,
       p.proargtypes[0] = 'jsonb'::regtype AS json,
       EXISTS (SELECT FROM pg_type t JOIN pg_namespace s ON s.oid = t.typnamespace
                WHERE (s.nspname = $3 OR $3 = '') AND t.typname = 'event'
                  AND t.typarray = p.proargtypes[0]) AS events,
       has_function_privilege(p.oid, 'EXECUTE') AS may_execute,
       has_schema_privilege(n.oid, 'USAGE') AS may_use,
       current_user AS role
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = $1 AND p.proname = $2
 ORDER BY p.oid)";

std::string Wanted(const Call& call, const std::string& state_schema) {
  const std::string state =
      state_schema.empty() ? "STATE_SCHEMA" : postgres::QuoteIdentifier(state_schema);
  return fmt::format("{0}(events {1}.event[]) or {0}(events jsonb)", call.function.Quoted(), state);
}

absl::Status WrongSignature(const Call& call, const std::string& state_schema,
                            const postgres::Result& rows) {
  std::vector<std::string> known;
  for (const postgres::Row row : rows) {
    known.push_back(fmt::format("{}({})", call.function.ToString(), row.Text("arguments")));
  }
  return FailedPrecondition("{} takes no events: create {}", fmt::join(known, ", "),
                            Wanted(call, state_schema));
}

}  // namespace

absl::StatusOr<EventsAs> FindFunction(const Call& call, const std::string& state_schema,
                                      postgres::Executor& on) {
  const std::string name = call.function.ToString();
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   on.Execute(kFunctions, call.function.schema, call.function.name, state_schema));
  if (rows.empty()) {
    return FailedPrecondition("function {} does not exist; create {}", name,
                              Wanted(call, state_schema));
  }
  std::vector<postgres::Row> fits;
  size_t with_defaults = 0;
  for (const postgres::Row row : rows) {
    if (!row.Bool("json") && !row.Bool("events")) continue;
    if (row.Bool("one")) {
      fits.push_back(row);
    } else if (row.Bool("takes_one")) {
      ++with_defaults;
    }
  }
  if (fits.empty()) return WrongSignature(call, state_schema, rows);
  if (fits.size() + with_defaults > 1) {
    return FailedPrecondition(
        "there is more than one function {} that could take the events, and it can't be said which "
        "is meant; drop all but one",
        name);
  }
  const postgres::Row& row = fits.front();
  if (row.Text("kind") != "f") {
    return FailedPrecondition("{} is a procedure, an aggregate or a window function; create {}",
                              name, "a plain FUNCTION in its place");
  }
  const std::string role = row.String("role");
  if (!row.Bool("may_use")) {
    return FailedPrecondition("role {0} may not use schema {1}; GRANT USAGE ON SCHEMA {2} TO {0}",
                              role, call.function.schema,
                              postgres::QuoteIdentifier(call.function.schema));
  }
  if (!row.Bool("may_execute")) {
    return FailedPrecondition(
        "role {0} may not execute {1}; GRANT EXECUTE ON FUNCTION {2}({3}) TO {0}", role, name,
        call.function.Quoted(), row.Text("arguments"));
  }
  return row.Bool("events") ? EventsAs::kArray : EventsAs::kJson;
}

absl::Status CheckFunction(const Call& call, const std::string& state_schema,
                           postgres::Executor& on, std::vector<Mismatch>* found) {
  const auto function = FindFunction(call, state_schema, on);
  if (function.ok()) return absl::OkStatus();
  // (What the database itself says has a SQLSTATE.)
  if (!postgres::SqlState(function.status()).empty() ||
      postgres::Classify(function.status()) == postgres::ErrorClass::kInDoubt) {
    return function.status();
  }
  found->push_back({call.place, std::string(MessageOf(function.status()))});
  return absl::OkStatus();
}

}  // namespace lockstep::projections
