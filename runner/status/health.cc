#include "runner/status/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/config/config.h"
#include "platform/duration.h"

namespace lockstep::runner {
namespace {

constexpr WallTime kNever;

Millis Since(WallTime at, WallTime now) {
  return std::max(Millis(0), std::chrono::duration_cast<Millis>(now - at));
}

// How long it has had work and committed nothing.
Millis WithoutCommit(const LaneStatus& lane, WallTime now) {
  return Since(std::max(lane.oldest_received, lane.last_commit), now);
}

std::string Rounded(Millis time) {
  return FormatDuration(std::chrono::duration_cast<std::chrono::seconds>(time));
}

}  // namespace

void Bind(ConfigSection& config, HealthOptions& options) {
  config.Key("stuck_after", &options.stuck_after,
             "a lane with work that commits nothing for so long is stuck");
  config.Key("database_grace", &options.database_grace,
             "readiness outlives a lost database by so long");
  config.Key("heartbeat_timeout", &options.heartbeat_timeout,
             "heartbeats that stay away for so long mean that the publisher is gone");
  config.Key("quiet_after", &options.quiet_after,
             "a group that committed nothing for so long and has no work is called quiet");
  config.Key("lag_alert", &options.lag_alert, "more lag than this is told on the status page");
}

bool IsStuck(const LaneStatus& lane, WallTime now, const HealthOptions& options) {
  if (lane.in_hand() == 0 || lane.oldest_received == kNever) return false;
  return WithoutCommit(lane, now) > options.stuck_after;
}

HonestLag LagOf(const GroupStatus& status, WallTime now, const HealthOptions& options) {
  WallTime oldest = kNever;
  for (const LaneStatus& lane : status.lanes) {
    if (lane.in_hand() == 0 || lane.oldest_published == kNever) continue;
    if (oldest == kNever || lane.oldest_published < oldest) oldest = lane.oldest_published;
  }
  if (oldest != kNever) return {Since(oldest, now), "oldest event in hand"};
  if (!status.ready()) {
    const WallTime since = std::max(status.caught_up, status.last_commit);
    if (since == kNever) return {Millis(0), "not connected yet"};
    return {Since(since, now), "not connected since then"};
  }
  if (status.last_heartbeat != kNever) {
    const Millis silence = Since(status.last_heartbeat, now);
    if (silence > options.heartbeat_timeout) return {silence, "no heartbeat since then"};
    return {Millis(0), "heartbeat heard, nothing in hand"};
  }
  return {Millis(0), "nothing in hand"};
}

std::string StateWord(const GroupStatus& status, Millis lag, WallTime now,
                      const HealthOptions& options) {
  if (status.state != GroupState::kRunning) return std::string(Name(status.state));
  if (!status.stream.empty()) return "no stream";
  for (const LaneStatus& lane : status.lanes) {
    if (IsStuck(lane, now, options)) return "stuck";
  }
  const bool idle = status.in_hand() == 0;
  if (idle && status.last_heartbeat != kNever &&
      Since(status.last_heartbeat, now) > options.heartbeat_timeout) {
    return "no heartbeat";
  }
  if (lag > options.lag_alert) return "behind";
  return idle && Since(status.last_commit, now) > options.quiet_after ? "quiet" : "running";
}

std::vector<FoundObstacle> ObstaclesOf(const GroupStatus& status, WallTime now,
                                       const HealthOptions& options) {
  std::vector<FoundObstacle> found;
  const auto say = [&](Obstacle what, std::string_view text) {
    found.push_back({what, fmt::format("group {}: {}", status.name, text)});
  };
  const auto say_state = [&](Obstacle what) {
    say(what, fmt::format("{}{}{}", Name(status.state), status.reason.empty() ? "" : ": ",
                          status.reason));
    return found;
  };
  switch (status.state) {
    case GroupState::kStarting:
      return say_state(Obstacle::kStarting);
    case GroupState::kWaiting:
      return say_state(Obstacle::kWaiting);
    case GroupState::kHalted:
      return say_state(Obstacle::kHalted);
    case GroupState::kStopped:
      return say_state(Obstacle::kStopped);
    case GroupState::kPaused:
      return found;  // as somebody wants it
    case GroupState::kRunning:
      break;
  }
  if (!status.stream.empty()) {
    say(Obstacle::kStream, fmt::format("no stream from Pub/Sub: {}", status.stream));
  }
  const Millis lost = Since(status.database_ok, now);
  if (!status.database_error.empty() && lost > options.database_grace) {
    say(Obstacle::kDatabase, fmt::format("the database has not answered for {}: {}", Rounded(lost),
                                         status.database_error));
  } else if (const Millis still = Since(status.last_turn, now);
             still > options.stuck_after + options.database_grace) {
    // The loop talks to the database once a round: a server that hangs holds it too.
    say(Obstacle::kLoop, fmt::format("its loop has stood still for {}", Rounded(still)));
  }
  for (const LaneStatus& lane : status.lanes) {
    if (!IsStuck(lane, now, options)) continue;
    say(Obstacle::kLane,
        fmt::format("lane {} has {} messages in hand and has committed nothing for {}", lane.lane,
                    lane.in_hand(), Rounded(WithoutCommit(lane, now))));
  }
  return found;
}

std::vector<std::string> NotReady(const GroupStatus& status, WallTime now,
                                  const HealthOptions& options) {
  std::vector<std::string> reasons;
  for (FoundObstacle& found : ObstaclesOf(status, now, options)) {
    reasons.push_back(std::move(found.text));
  }
  return reasons;
}

}  // namespace lockstep::runner
