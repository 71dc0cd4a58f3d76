#include "ctl/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "platform/printable.h"
#include "platform/status.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

constexpr int kBar = 30;
constexpr double kPrintEvery = 2;  // seconds, where there is no terminal
constexpr double kIdle = 5;        // seconds without a message: caught up
constexpr double kNobody = 30;     // seconds without a runner: say so and end
constexpr Millis kBetweenLooks{500};

double Since(SteadyTime then) {
  return std::chrono::duration<double>(Clock::System().Steady() - then).count();
}

double Left(int64_t done, int64_t total) {
  return static_cast<double>(std::max<int64_t>(total - done, 0));
}

}  // namespace

std::string About(Millis duration) {
  const int64_t ms = duration.count();
  const int64_t seconds = (ms + 500) / 1000;
  if (ms < 1'000) return fmt::format("{}ms", ms);
  if (ms < 10'000 && ms % 1'000 != 0) return fmt::format("{:.1f}s", static_cast<double>(ms) / 1000);
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  const int64_t minutes = seconds / 60;
  if (minutes < 48 * 60) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  return fmt::format("{}d{:02}h", minutes / 60 / 24, minutes / 60 % 24);
}

std::string ProgressLine(int64_t done, int64_t total, const Pace& pace) {
  const double rate = pace.per_second().value_or(0);
  if (total <= 0) return fmt::format("{} applied  {:.0f}/s", done, rate);
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int full = static_cast<int>(part * kBar);
  // Not 100% before the last.
  const double percent = std::floor(part * 100);
  const auto left = pace.SecondsFor(Left(done, total));
  std::string end = "nothing moves";
  if (done >= total) {
    end = "caught up";
  } else if (left) {
    end = About(std::chrono::seconds(std::llround(std::ceil(*left)))) + " left";
  } else if (done == 0) {
    end = "waiting for the first";
  }
  return fmt::format("[{}{}] {:3.0f}%  {} of about {}  {:.0f}/s  {}", std::string(full, '#'),
                     std::string(kBar - full, '.'), percent, done, total, rate, end);
}

bool ProgressPrinter::Due(bool at_once) {
  now_ = Since(began_);
  if (!at_once && (json_ || !terminal_) && now_ - shown_ < kPrintEvery) return false;
  shown_ = now_;
  return true;
}

void ProgressPrinter::Print(const std::string& line) {
  const bool moves = terminal_ && !json_;
  fmt::print(stderr, "{}{}{}", moves ? "\r\033[K" : "", Printable(line), moves ? "" : "\n");
  open_line_ = moves;
}

void ProgressPrinter::Show(int64_t done, int64_t total, bool at_once) {
  pace_.Note(Since(began_), static_cast<double>(done));
  if (!Due(at_once)) return;
  if (!json_) return Print(ProgressLine(done, total, pace_));
  const auto left = pace_.SecondsFor(Left(done, total));
  Print(Json({{"elapsed_seconds", std::round(now_ * 10) / 10},
              {"done", done},
              {"total", total},
              {"per_second", std::round(pace_.per_second().value_or(0))},
              {"eta_seconds", left && total > 0 ? Json(std::ceil(*left)) : Json(nullptr)}})
            .dump());
}

void ProgressPrinter::Say(const std::string& text) {
  if (json_) return;
  EndLine();
  fmt::print(stderr, "{}\n", Printable(text));
}

void ProgressPrinter::Wait(const std::string& text) {
  if (!Due(false)) return;
  if (!json_) return Print(text);
  Print(Json({{"elapsed_seconds", std::round(now_ * 10) / 10}, {"waiting", text}}).dump());
}

void ProgressPrinter::EndLine() {
  if (std::exchange(open_line_, false)) fmt::print(stderr, "\n");
}

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
