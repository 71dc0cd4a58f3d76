#include "verify/passage.h"

#include <thread>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "publisher/outbox/outbox_rows.h"

namespace lockstep::verify {

Passage::Passage(postgres::Connection* source, postgres::QualifiedName outbox,
                 postgres::Connection& replica, const state::Schema& schema, std::string group,
                 PassageOptions options)
    : source_(source),
      outbox_(std::move(outbox)),
      replica_(replica),
      overview_(schema),
      group_(std::move(group)),
      options_(options) {}

absl::Status Passage::Await(const std::stop_token& stop) {
  const SteadyTime deadline = Clock::System().Steady() + options_.timeout;
  if (source_ != nullptr) RETURN_IF_ERROR(AwaitPublished(deadline, stop));
  return AwaitApplied(deadline, stop);
}

bool Passage::Rest(SteadyTime deadline, const std::stop_token& stop) const {
  if (stop.stop_requested() || Clock::System().Steady() >= deadline) return false;
  std::this_thread::sleep_for(options_.look);
  return true;
}

absl::Status Passage::AwaitPublished(SteadyTime deadline, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const int64_t newest, publisher::NewestSequence(*source_, outbox_));
  while (true) {
    ASSIGN_OR_RETURN(const int64_t waiting, publisher::CountWaiting(*source_, outbox_, newest));
    if (waiting == 0) return absl::OkStatus();
    if (Rest(deadline, stop)) continue;
    return FailedPrecondition(
        "{} rows of {} have not been published within {}; is its publisher running?", waiting,
        outbox_.ToString(), FormatDuration(options_.timeout));
  }
}

absl::Status Passage::AwaitApplied(SteadyTime deadline, const std::stop_token& stop) {
  std::optional<WallTime> since;  // by the clock of the replica's database, as the reports are
  while (true) {
    ASSIGN_OR_RETURN(const auto answer, overview_.Through(replica_, group_));
    const postgres::Row row = answer[0];
    if (!since) since = row.Time("now") + options_.grace;
    const auto through = row.OptionalTime("through");
    if (through && *through >= *since) return absl::OkStatus();
    if (Rest(deadline, stop)) continue;
    if (!through) {
      return FailedPrecondition(
          "no runner of group {} is working, or one is not connected to Pub/Sub, so it can't be "
          "told whether the group has caught up; `lockstepctl lag` shows them",
          group_);
    }
    return FailedPrecondition(
        "group {} has not caught up within {}: `lockstepctl lag` shows what it is at", group_,
        FormatDuration(options_.timeout));
  }
}

}  // namespace lockstep::verify
