#include "sagas/engine/work_session.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "sagas/engine/sql_outcome.h"

namespace lockstep::sagas {

absl::Status WorkSession::Open() {
  if (!broken()) return absl::OkStatus();
  store_.reset();
  connection_.reset();
  // A server that hangs is given up after the longest that a step may take; one that is gone, when
  // its connection is found dead.
  ASSIGN_OR_RETURN(connection_,
                   postgres::Connection::Open({.url = options_.database,
                                               .application_name = "lockstep-orchestrator steps",
                                               .statement_timeout = kLongestSql,
                                               .lock_timeout = options_.lock_timeout}));
  store_ = std::make_unique<WorkStore>(*connection_);
  return connection_->Run(
      fmt::format("SET statement_timeout = {}; SELECT set_config('lockstep.saga_actor', {}, false)",
                  kStatementTimeout.count(), postgres::QuoteLiteral(options_.owner)));
}

}  // namespace lockstep::sagas
