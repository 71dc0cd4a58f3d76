#include "ctl/command/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ctl/command/command.h"
#include "platform/printable.h"

namespace lockstep::ctl {
namespace {

constexpr int kBar = 30;
constexpr double kPrintEvery = 2;  // seconds, where there is no terminal

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

}  // namespace lockstep::ctl
