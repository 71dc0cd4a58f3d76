#include <fmt/format.h>

#include "ctl/source/backfill.h"
#include "platform/daemon/service_thread.h"
#include "platform/status.h"

namespace lockstep::ctl {
namespace {

using publisher::BackfillRecord;

constexpr Millis kBackfillLook{500};
constexpr std::chrono::seconds kUntaken{15};  // a publisher looks every five

std::string_view KindOf(const BackfillRecord& record) {
  return record.repair ? "repair" : "backfill";
}

}  // namespace

absl::StatusOr<BackfillRecord> FollowBackfill(publisher::BackfillStore& store,
                                              const std::string& id, ProgressPrinter& printer,
                                              const std::stop_token& stop) {
  SteadyTime taken = Clock::System().Steady();
  while (true) {
    ASSIGN_OR_RETURN(BackfillRecord record, store.Find(id));
    const SteadyTime now = Clock::System().Steady();
    if (record.leased) taken = now;
    if (record.state != "running") {
      if (record.state == "done") printer.Show(record.rows_done, record.rows_done);
      printer.EndLine();
      return record;
    }
    if (!record.last_error.empty()) {
      printer.Wait(record.last_error);
    } else if (now - taken > kUntaken) {
      printer.Wait(fmt::format("no publisher of {} works on it; is one running?", record.outbox));
    } else {
      printer.Show(record.rows_done, record.rows_expected);
    }
    if (!SleepUnlessStopped(stop, kBackfillLook)) continue;
    printer.EndLine();
    return absl::CancelledError(
        fmt::format("{} {} goes on at the publisher; `lockstepctl backfill cancel {}` ends it",
                    KindOf(record), record.name, id));
  }
}

absl::StatusOr<BackfillRecord> AwaitBackfill(publisher::BackfillStore& store, const std::string& id,
                                             ProgressPrinter& printer,
                                             const std::stop_token& stop) {
  ASSIGN_OR_RETURN(BackfillRecord record, FollowBackfill(store, id, printer, stop));
  if (record.state == "done") return record;
  return FailedPrecondition(
      "{} {} ({}) is {}{}{}{}", KindOf(record), record.name, id, record.state,
      record.last_error.empty() ? "" : ": ", record.last_error,
      record.ended() ? "" : fmt::format("; `lockstepctl backfill resume {}` lets it go on", id));
}

}  // namespace lockstep::ctl
