#include "verify/session.h"

#include "platform/status.h"

namespace lockstep::verify {

absl::Status MakeReadOnly(postgres::Connection& connection) {
  return connection.Run("SET default_transaction_read_only = on");
}

absl::StatusOr<postgres::Result> AskReadOnly(postgres::Connection& connection, std::string_view sql,
                                             const postgres::Params& params) {
  if (params.values().empty()) return absl::InternalError("a declared query without a parameter");
  ASSIGN_OR_RETURN(auto transaction, connection.Begin());
  RETURN_IF_ERROR(transaction.Run("SET TRANSACTION READ ONLY"));
  auto answer = transaction.Execute(sql, params);
  if (answer.ok()) RETURN_IF_ERROR(transaction.Commit());
  return answer;
}

absl::Status RefuseStandby(postgres::Connection& source) {
  ASSIGN_OR_RETURN(const auto answer, source.Execute("SELECT pg_is_in_recovery() AS standby"));
  if (!answer[0].Bool("standby")) return absl::OkStatus();
  return FailedPrecondition(
      "the source's database is a standby: what it has not replayed yet would look like rows that "
      "only the replica has; name the primary");
}

}  // namespace lockstep::verify
