#include "runner/service/inbox_cleaner.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

constexpr Millis kLook{1'000};

}  // namespace

InboxCleaner::InboxCleaner(Options options, Groups groups)
    : options_(std::move(options)),
      groups_(std::move(groups)),
      schema_(options_.state_schema),
      ticker_(std::min(kLook, options_.interval), [this] { Round(); }) {}

void InboxCleaner::Round() {
  const SteadyTime now = Clock::System().Steady();
  std::vector<InboxRetention> groups = groups_();
  if (groups == cleaned_ && now < next_round_) return;
  cleaned_ = std::move(groups);
  next_round_ = now + options_.interval;
  const auto cleaned = CleanOnce(cleaned_);
  if (cleaned.ok()) {
    if (*cleaned > 0) log::Info("inbox cleaned", {{"rows", *cleaned}});
    return;
  }
  // The groups say it loudly when the database is down, and this only comes again later. A right
  // that is missing nobody else says, and the inbox would grow without a bound.
  const auto error_class = postgres::Classify(cleaned.status());
  (error_class == postgres::ErrorClass::kConfiguration ? log::Warning : log::Debug)(
      "the inbox was not cleaned",
      {{"schema", options_.state_schema}, {"error", cleaned.status()}});
}

absl::StatusOr<int64_t> InboxCleaner::CleanOnce(const std::vector<InboxRetention>& groups) {
  ASSIGN_OR_RETURN(const auto connection,
                   postgres::Connection::Open(
                       {.url = options_.database, .application_name = "lockstep-runner cleaner"}));
  const WallTime now = Clock::System().Now();
  int64_t rows = 0;
  for (const InboxRetention& group : groups) {
    const state::Retention retention(schema_, group.group);
    ASSIGN_OR_RETURN(const int64_t events, Repeat([&] {
                       return retention.ForgetEvents(*connection, now, group.retention,
                                                     options_.batch);
                     }));
    RETURN_IF_ERROR(Repeat([&] {
                      return retention.ForgetTombstones(*connection, now, group.retention,
                                                        options_.batch);
                    }).status());
    RETURN_IF_ERROR(retention.ForgetGone(*connection, now));
    if (options_.dead_letters > Millis(0)) {
      RETURN_IF_ERROR(Repeat([&] {
                        return retention.ForgetResolved(*connection, options_.dead_letters,
                                                        options_.batch);
                      }).status());
    }
    rows += events;
    ASSIGN_OR_RETURN(const auto retired, retention.NewestRetired(*connection));
    if (!retired) continue;
    ASSIGN_OR_RETURN(const int64_t gone, Repeat([&] {
                       return retention.ForgetRows(*connection, now, group.retention,
                                                   options_.batch);
                     }));
    rows += gone;
    if (!ticker_.stopping()) RETURN_IF_ERROR(retention.ForgetRetired(*connection, *retired));
  }
  if (options_.audit > Millis(0)) {
    RETURN_IF_ERROR(Repeat([&] {
                      return state::ForgetAudits(*connection, schema_, options_.audit,
                                                 options_.batch);
                    }).status());
  }
  return rows;
}

absl::StatusOr<int64_t> InboxCleaner::Repeat(
    const std::function<absl::StatusOr<int64_t>()>& forget) {
  int64_t total = 0;
  while (!ticker_.stopping()) {
    ASSIGN_OR_RETURN(const int64_t gone, forget());
    total += gone;
    if (gone < options_.batch) break;
  }
  return total;
}

}  // namespace lockstep::runner
