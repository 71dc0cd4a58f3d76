#include "postgres/pooler.h"

#include "platform/status.h"

namespace lockstep::postgres {

absl::Status RefuseTransactionPooler(Connection& session, const ConnectionOptions& options) {
  constexpr char kBackend[] = "SELECT pg_backend_pid()";
  // One that takes its server sessions in turn gives one client two of them in a row; one that
  // takes the last used gives two clients the same.
  ASSIGN_OR_RETURN(const auto other, Connection::Open(options));
  ASSIGN_OR_RETURN(const int64_t first, session.Number(kBackend));
  ASSIGN_OR_RETURN(const int64_t second, session.Number(kBackend));
  ASSIGN_OR_RETURN(const int64_t elsewhere, other->Number(kBackend));
  ASSIGN_OR_RETURN(const int64_t third, session.Number(kBackend));
  if (second == first && third == first && elsewhere != first) return absl::OkStatus();
  return FailedPrecondition(
      "the database is reached through a transaction pooler, on which session locks do not hold: "
      "connect to Postgres itself, or through a pool in session mode");
}

}  // namespace lockstep::postgres
