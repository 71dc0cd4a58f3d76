#include "ctl/group/follow_replay.h"

#include <thread>
#include <utility>

#include "ctl/command/progress.h"
#include "platform/status.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

constexpr double kIdle = 5;     // seconds without a message: caught up
constexpr double kNobody = 30;  // seconds without a runner: say so and end
constexpr Millis kBetweenLooks{500};

double Since(SteadyTime then) {
  return std::chrono::duration<double>(Clock::System().Steady() - then).count();
}

}  // namespace

void HandledByInstances::Note(const std::string& instance, int64_t handled) {
  int64_t& last = last_[instance];
  sum_ += handled >= last ? handled - last : handled;
  last = handled;
}

absl::Status FollowReplay(RunnerContext& runner, const std::string& group, int64_t epoch,
                          int64_t total, bool json) {
  const state::Overview overview(runner.schema());
  ProgressPrinter printer(json);
  HandledByInstances handled;
  SteadyTime moved = Clock::System().Steady(), alive = moved;
  int64_t last = -1;
  while (true) {  // Ctrl-C ends the watching, not the replay
    ASSIGN_OR_RETURN(const auto rows, overview.Progress(*runner.connection, group, epoch));
    if (rows.empty() || rows[0].Int("epoch") != epoch) {
      return absl::AbortedError("another reset has begun meanwhile; this one is over");
    }
    const bool seek_done = rows[0].Bool("seek_done");
    int64_t queued = 0;
    bool ready = false;
    for (const postgres::Row row : rows) {
      if (row.IsNull("instance")) break;
      handled.Note(row.String("instance"), row.Int("handled"));
      queued += row.Int("queued");
      ready = ready || row.Bool("ready");
      alive = Clock::System().Steady();
    }
    const int64_t done = handled.sum();
    if (std::exchange(last, done) != done || !seek_done || !ready) moved = Clock::System().Steady();
    const double still = Since(moved);
    const bool ended =
        seek_done && ready && queued == 0 && (still > kIdle || (done >= total && still > 1));
    if (seek_done) {
      printer.Show(done, total, ended);
    } else {
      printer.Wait("waiting for the Seek: late acks of the epoch before must have passed");
    }
    if (ended) return absl::OkStatus();
    if (Since(alive) > kNobody) {
      return absl::UnavailableError(
          "no runner of this group is alive: the reset stands and is performed by the next one "
          "that starts");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace lockstep::ctl
