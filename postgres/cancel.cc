#include "postgres/cancel.h"

namespace lockstep::postgres {

void CancelStatement(Connection& from, int backend_pid) {
  from.Run("SELECT pg_cancel_backend($1::int)", backend_pid).IgnoreError();
}

}  // namespace lockstep::postgres
