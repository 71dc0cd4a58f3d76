#include "verify/passage.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::verify {
namespace {

constexpr size_t kEventsAtOnce = 1'000;

std::string StillBehind(const std::optional<WallTime>& through, Millis left) {
  if (!through) return "waiting until a runner of the group is connected to Pub/Sub";
  return fmt::format(
      "waiting until the group has passed the first look: {} to go",
      FormatDuration(std::chrono::duration_cast<std::chrono::seconds>(left + Millis(999))));
}

// False = time is up.
bool Rest(const PassageOptions& options, SteadyTime deadline, const std::string& what,
          const std::stop_token& stop) {
  if (stop.stop_requested() || Clock::System().Steady() >= deadline) return false;
  if (options.waiting) options.waiting(what);
  std::this_thread::sleep_for(options.look);
  return true;
}

}  // namespace

absl::StatusOr<std::optional<publisher::PublishedEvent>> AwaitPublished(
    postgres::Connection& source, const publisher::Declaration& declaration,
    const PassageOptions& options, SteadyTime deadline, const std::stop_token& stop) {
  const postgres::QualifiedName& outbox = declaration.outbox;
  ASSIGN_OR_RETURN(const int64_t newest, publisher::NewestSequence(source, outbox));
  while (true) {
    ASSIGN_OR_RETURN(const int64_t waiting, publisher::CountWaiting(source, outbox, newest));
    if (waiting == 0) break;
    if (Rest(options, deadline,
             fmt::format("waiting until {} rows of {} are published", waiting, outbox.ToString()),
             stop)) {
      continue;
    }
    return FailedPrecondition(
        "{} rows of {} have not been published within {}; is its publisher running?", waiting,
        outbox.ToString(), FormatDuration(options.timeout));
  }
  return publisher::NewestPublished(source, outbox, declaration.aggregate_type, newest);
}

Passage::Passage(Source source, const publisher::Declaration& declaration,
                 postgres::Connection& replica, const state::Schema& schema, std::string group,
                 PassageOptions options)
    : source_(std::move(source)),
      declaration_(declaration),
      replica_(replica),
      overview_(schema),
      fates_(schema, ConsumerGroup(group)),
      group_(std::move(group)),
      options_(std::move(options)) {}

absl::Status Passage::Await(const std::stop_token& stop) {
  const SteadyTime deadline = Clock::System().Steady() + options_.timeout;
  // By the clock of the replica's database, as the reports are.
  ASSIGN_OR_RETURN(const auto answer, overview_.Through(replica_, group_));
  const WallTime begun = answer[0].Time("now");
  if (source_.connection != nullptr) {
    ASSIGN_OR_RETURN(source_.newest,
                     AwaitPublished(*source_.connection, declaration_, options_, deadline, stop));
    source_.silent = !source_.newest.has_value();
  }
  return AwaitApplied(begun, deadline, stop);
}

absl::StatusOr<bool> Passage::Moved(const postgres::Row& through, WallTime begun) {
  if (const auto newest = through.OptionalTime("newest"); newest && *newest > begun) return true;
  if (source_.silent) return true;
  if (!source_.newest) return false;
  ASSIGN_OR_RETURN(const auto unknown, Unknown({{.event_id = source_.newest->event_id,
                                                 .aggregate_key = source_.newest->aggregate_key,
                                                 .version = source_.newest->version,
                                                 .message_id = source_.newest->message_id}}));
  return unknown.empty();
}

absl::StatusOr<std::vector<state::EventFates::Event>> Passage::Unknown(
    const std::vector<state::EventFates::Event>& events) {
  ASSIGN_OR_RETURN(const auto group, overview_.Positions(replica_, group_));
  if (group.empty()) return events;
  const int generation = static_cast<int>(group[0].Int("generation"));
  std::vector<state::EventFates::Event> unknown;
  for (size_t i = 0; i < events.size(); i += kEventsAtOnce) {
    const std::vector<state::EventFates::Event> page(
        events.begin() + static_cast<std::ptrdiff_t>(i),
        events.begin() + static_cast<std::ptrdiff_t>(std::min(i + kEventsAtOnce, events.size())));
    ASSIGN_OR_RETURN(const auto fates, fates_.Of(replica_, generation, page));
    for (size_t j = 0; j < page.size(); ++j) {
      if (fates[j].name.empty()) unknown.push_back(page[j]);
    }
  }
  return unknown;
}

absl::Status Passage::AwaitApplied(WallTime begun, SteadyTime deadline,
                                   const std::stop_token& stop) {
  bool moved = false;
  SteadyTime since;  // it has
  while (true) {
    ASSIGN_OR_RETURN(const auto answer, overview_.Through(replica_, group_));
    const postgres::Row row = answer[0];
    const SteadyTime now = Clock::System().Steady();
    if (!moved) {
      ASSIGN_OR_RETURN(moved, Moved(row, begun));
      since = now;
    }
    const auto through = row.OptionalTime("through");
    // Nothing in hand may be older than the grace after that. By ages and a clock of our own: the
    // database's may jump meanwhile, and is believed only for what is read at one time.
    const auto oldest = through ? std::max(row.Time("now") - *through, WallTime::duration(0))
                                : WallTime::duration(0);
    const auto left = std::chrono::duration_cast<Millis>(options_.grace + oldest - (now - since));
    if (moved && through && left <= Millis(0)) return absl::OkStatus();
    const std::string what =
        moved ? StillBehind(through, left)
              : "waiting until something newer than the first look has come through the group";
    if (Rest(options_, deadline, what, stop)) continue;
    if (!through) {
      return FailedPrecondition(
          "no runner of group {} is working, or one is not connected to Pub/Sub, so it can't be "
          "told whether the group has caught up; `lockstepctl lag` shows them",
          group_);
    }
    if (!moved) {
      return FailedPrecondition(
          "group {} does not move: within {} neither a heartbeat nor an event that is newer than "
          "the first look has come through, nor the newest event of the outbox; so it can't be "
          "told whether the group has caught up; heartbeats of the publisher (heartbeat.topics) "
          "show it, `lockstepctl lag` what the group is at",
          group_, FormatDuration(options_.timeout));
    }
    return FailedPrecondition(
        "group {} has not caught up within {}: `lockstepctl lag` shows what it is at", group_,
        FormatDuration(options_.timeout));
  }
}

absl::Status Passage::AwaitEvents(
    std::vector<state::EventFates::Event> events,
    const std::function<absl::Status(std::vector<state::EventFates::Event>* left)>& left,
    const std::stop_token& stop) {
  const SteadyTime deadline = Clock::System().Steady() + options_.timeout;
  while (true) {
    ASSIGN_OR_RETURN(events, Unknown(events));
    if (!events.empty()) RETURN_IF_ERROR(left(&events));
    if (events.empty()) return absl::OkStatus();
    if (Rest(options_, deadline,
             fmt::format("waiting until the group has {} messages of the repair", events.size()),
             stop)) {
      continue;
    }
    return FailedPrecondition(
        "{} messages of the repair have not reached group {} within {}; they may still be on their "
        "way, behind others of their subscription: `lockstepctl verify` tells later",
        events.size(), group_, FormatDuration(options_.timeout));
  }
}

}  // namespace lockstep::verify
