#include "ctl/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

constexpr int kBar = 30;
constexpr double kIdle = 5;     // seconds without a message: caught up
constexpr double kNobody = 30;  // seconds without a runner: say so and end
constexpr Millis kLook{500};

constexpr std::string_view kHandled = R"(
SELECT g.epoch, g.seek_state = 'done', coalesce(sum(i.handled), 0), coalesce(sum(i.queued), 0),
       count(i.*)
  FROM {state}.consumer_groups g
  LEFT JOIN {state}.instances i
    ON i.group_name = g.group_name AND i.epoch = $2 AND i.seen_at > now() - interval '15 seconds'
   AND i.state <> 'halted'
 WHERE g.group_name = $1
 GROUP BY g.epoch, g.seek_state)";

}  // namespace

void Pace::Note(double seconds, int64_t done) {
  looks_.push_back({seconds, done});
  while (looks_.size() > 2 && looks_[1].seconds < seconds - kWindow) looks_.erase(looks_.begin());
}

double Pace::per_second() const {
  if (looks_.size() < 2) return 0;
  const double time = looks_.back().seconds - looks_.front().seconds;
  if (time <= 0) return 0;
  return static_cast<double>(looks_.back().done - looks_.front().done) / time;
}

std::optional<double> Pace::SecondsFor(int64_t left) const {
  const double rate = per_second();
  if (rate <= 0) return std::nullopt;
  return static_cast<double>(left) / rate;
}

std::string ProgressLine(int64_t done, int64_t total, const Pace& pace) {
  const double part =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
  const int full = static_cast<int>(part * kBar);
  const auto left = pace.SecondsFor(std::max<int64_t>(total - done, 0));
  return fmt::format(
      "[{}{}] {:3.0f}%  {} of about {}  {:.0f}/s  {}", std::string(full, '#'),
      std::string(kBar - full, '.'), part * 100, done, total, pace.per_second(),
      left ? FormatDuration(Millis(std::llround(std::ceil(*left)) * 1000)) + " left" : "waiting");
}

absl::Status FollowReplay(RunnerContext& runner, const std::string& group, int64_t epoch,
                          int64_t total, bool quiet) {
  const std::string sql = runner.schema().Sql(kHandled);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const SteadyTime began = Clock::System().Steady();
  const auto since = [](SteadyTime then) {
    return std::chrono::duration<double>(Clock::System().Steady() - then).count();
  };
  Pace pace;
  SteadyTime moved = began, alive = began;
  int64_t last = -1;
  double printed = -10;
  while (true) {  // Ctrl-C ends the watching, not the replay
    ASSIGN_OR_RETURN(const auto row,
                     runner.connection->Execute(sql, postgres::Params().Add(group).Add(epoch)));
    if (row.empty() || row.Int(0, 0) != epoch) {
      return absl::AbortedError("another reset has begun meanwhile; this one is over");
    }
    const int64_t done = row.Int(0, 2);
    const bool sought = row.Bool(0, 1);
    if (row.Int(0, 4) > 0) alive = Clock::System().Steady();
    if (done != last || !sought) moved = Clock::System().Steady();
    last = done;
    if (sought) pace.Note(since(began), done);  // the wait before it is no pace
    const bool ended = sought && row.Int(0, 3) == 0 &&
                       (since(moved) > kIdle || (done >= total && since(moved) > 1)) &&
                       row.Int(0, 4) > 0;
    if (!quiet && (terminal || ended || since(began) - printed >= 2)) {
      printed = since(began);
      const std::string line = sought ? ProgressLine(done, total, pace)
                                      : std::string(
                                            "waiting for the Seek: late acks of the epoch "
                                            "before must have passed");
      fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
    }
    if (ended) {
      if (terminal) fmt::print(stderr, "\n");
      return absl::OkStatus();
    }
    if (since(alive) > kNobody) {
      return absl::UnavailableError(
          "no runner of this group is alive: the reset stands and is performed by the next one "
          "that "
          "starts");
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace lockstep::ctl
