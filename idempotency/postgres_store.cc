#include "idempotency/postgres_store.h"

#include "idempotency/store_sql.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"

namespace lockstep::idempotency {
namespace {

constexpr postgres::Statement kCheckAndPut{"idempotency_check_and_put", kCheckAndPutSql};
constexpr postgres::Statement kFinish{"idempotency_finish", kFinishSql};
constexpr postgres::Statement kFail{"idempotency_fail", kFailSql};
constexpr postgres::Statement kRenew{"idempotency_renew", kRenewSql};

absl::StatusOr<postgres::Result> Call(postgres::Executor& executor,
                                      const postgres::Statement& statement,
                                      const SqlValues& values) {
  postgres::Params params;
  for (const auto& value : values) params.Add(value);
  auto result = executor.Execute(statement, params);
  const std::string state = postgres::SqlState(result.status());
  if (state == kLostSqlState) return absl::AbortedError(result.status().message());
  if (state == "3F000" || state == "42883" || state == "42P01") {
    return FailedPrecondition(
        "this database has no idempotency keys: run lockstepctl migrate up --set idempotency");
  }
  return result;
}

}  // namespace

absl::StatusOr<Answer> PostgresStore::CheckAndPut(const Request& request) {
  ASSIGN_OR_RETURN(const postgres::Result result,
                   Call(executor_, kCheckAndPut, CheckAndPutValues(request)));
  const postgres::Row row = result[0];
  return ParseAnswer(row.String("outcome"), row.OptionalText("digest"), row.OptionalText("error"),
                     row.OptionalText("token"));
}

absl::Status PostgresStore::Finish(const Held& held, const std::optional<std::string>& digest) {
  return Call(executor_, kFinish, FinishValues(held, digest)).status();
}

absl::Status PostgresStore::Fail(const Held& held, const std::string& error) {
  return Call(executor_, kFail, FailValues(held, Truncate(error, kMaxErrorBytes))).status();
}

absl::Status PostgresStore::Renew(const Held& held, Millis lease) {
  return Call(executor_, kRenew, RenewValues(held, lease)).status();
}

}  // namespace lockstep::idempotency
