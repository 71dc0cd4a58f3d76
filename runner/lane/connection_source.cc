#include "runner/lane/connection_source.h"

#include <utility>

#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/log/log.h"

namespace lockstep::runner {

ConnectionSource::ConnectionSource(postgres::ConnectionOptions options, std::string owner)
    : options_(std::move(options)),
      owner_(std::move(owner)),
      backoff_({.max_attempts = 0,
                .base = Millis(100),
                .cap = Millis(5'000),
                .jitter = RetryPolicy::Jitter::kProportional,
                .jitter_amount = 0.3}) {}

absl::StatusOr<postgres::Connection*> ConnectionSource::Try() {
  if (connection_ && !connection_->broken()) return connection_.get();
  connection_.reset();
  auto opened = postgres::Connection::Open(options_);
  if (!opened.ok()) return opened.status();
  refused_ = accept && !accept(**opened);
  if (refused_) return absl::AbortedError("this database lacks what was committed to it");
  connection_ = *std::move(opened);
  backend_pid_ = connection_->backend_pid();
  return connection_.get();
}

postgres::Connection* ConnectionSource::Get(const std::stop_token& stop) {
  while (true) {
    const auto connection = Try();
    if (connection.ok()) {
      if (backoff_.attempts() > 0) log::Info("the database answers again", {{"owner", owner_}});
      backoff_.Reset();
      return *connection;
    }
    if (refused_) return nullptr;
    const Millis wait = backoff_.Next();
    log::Warning(
        "waiting for the database",
        {{"owner", owner_}, {"retry_in", FormatDuration(wait)}, {"error", connection.status()}});
    if (SleepUnlessStopped(stop, wait)) return nullptr;
  }
}

}  // namespace lockstep::runner
