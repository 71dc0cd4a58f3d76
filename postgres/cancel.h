#pragma once

#include "postgres/connection.h"

namespace lockstep::postgres {

// Cancels what the session of that backend is doing, from another session. One that comes between
// two statements is lost, and a session that has ended by now is none's fault: nothing is answered.
void CancelStatement(Connection& from, int backend_pid);

}  // namespace lockstep::postgres
