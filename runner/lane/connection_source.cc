#include "runner/lane/connection_source.h"

#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::runner {

absl::StatusOr<postgres::Connection*> ConnectionSource::Try() {
  if (connection_ && !connection_->broken()) return connection_.get();
  connection_.reset();
  auto opened = postgres::Connection::Open(options_);
  if (!opened.ok()) return opened.status();
  if (accept) RETURN_IF_ERROR(accept(**opened));
  connection_ = *std::move(opened);
  backend_pid_ = connection_->backend_pid();
  return connection_.get();
}

absl::StatusOr<postgres::Connection*> ConnectionSource::Get(const std::stop_token& stop) {
  while (true) {
    const auto connection = Try();
    if (connection.ok()) {
      // The group says it once for all of its lanes.
      if (backoff_.attempts() > 0) log::Debug("the database answers again", {{"owner", owner_}});
      backoff_.Reset();
      return connection;
    }
    if (absl::IsAborted(connection.status())) return connection;
    const Millis wait = backoff_.Next();
    log::Fault(
        "waiting for the database",
        {{"owner", owner_}, {"retry_in", FormatDuration(wait)}, {"error", connection.status()}});
    if (SleepUnlessStopped(stop, wait)) return absl::CancelledError("it was stopped");
  }
}

}  // namespace lockstep::runner
