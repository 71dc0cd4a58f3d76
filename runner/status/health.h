#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "runner/status/group_status.h"
#include "runner/status/health_options.h"

// What a group's status means: how far behind it is, which lane is stuck, whether it is ready. Pure
// functions of a status and the time, so that page, metrics, /readyz and tests agree.
namespace lockstep::runner {

// How old the read model is, at the group as a whole. Idle reads as zero and stuck as stuck:
// the oldest message in hand counts; with nothing in hand, a heartbeat that was just heard means
// caught up, one that stopped coming means behind since then.
struct HonestLag {
  Millis lag{0};
  std::string basis;  // in words, for the page
};
HonestLag LagOf(const GroupStatus& status, WallTime now, const HealthOptions& options);

bool IsStuck(const LaneStatus& lane, WallTime now, const HealthOptions& options);

// The group in one word, for the page and `lockstepctl lag`: the state of its loop unless that
// runs, else `no stream`, `stuck`, `no heartbeat`, `behind`, `quiet` (nothing to do) or `running`.
std::string StateWord(const GroupStatus& status, Millis lag, WallTime now,
                      const HealthOptions& options);

// What can be in the way of a group's progress. Each has its note on the page (web/attention.cc).
enum class Obstacle { kStarting, kWaiting, kHalted, kStopped, kStream, kDatabase, kLoop, kLane };
inline constexpr Obstacle kObstacles[] = {
    Obstacle::kStarting, Obstacle::kWaiting,  Obstacle::kHalted, Obstacle::kStopped,
    Obstacle::kStream,   Obstacle::kDatabase, Obstacle::kLoop,   Obstacle::kLane};
constexpr std::string_view Name(Obstacle obstacle) {
  constexpr std::string_view kNames[] = {"starting", "waiting",  "halted", "stopped",
                                         "stream",   "database", "loop",   "lane"};
  static_assert(std::size(kNames) == std::size(kObstacles));
  return kNames[static_cast<size_t>(obstacle)];
}

struct FoundObstacle {
  Obstacle what;
  std::string text;  // a sentence that begins with the group's name
};
std::vector<FoundObstacle> ObstaclesOf(const GroupStatus& status, WallTime now,
                                       const HealthOptions& options);

// The same as sentences: one per reason why the group makes no progress; none = ready.
std::vector<std::string> NotReady(const GroupStatus& status, WallTime now,
                                  const HealthOptions& options);

}  // namespace lockstep::runner
