#include "examples/catalog/demo_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace lockstep::examples {
namespace {

constexpr int kBarWidth = 32;
constexpr int kLines = 4;

std::string Bar(int64_t done, int64_t whole) {
  const auto filled = static_cast<int>(whole == 0 ? 0 : done * kBarWidth / whole);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "█" : "░";
  return bar;
}

void Line(const char* name, int64_t done, int64_t whole, const std::string& rest) {
  fmt::print("\x1b[2K  {:<11} {} {:>6}  {}\n", name, Bar(std::min(done, whole), whole), done, rest);
}

}  // namespace

void DemoView::Show(const DemoState& state) {
  last_ = state;
  if (!terminal_) {
    if (state.elapsed - last_line_ < Millis(1000)) return;
    last_line_ = state.elapsed;
    fmt::print(
        "{:5.1f}s  written {}/{}  published {}  applied {}  source rows {}  read model rows {}\n",
        static_cast<double>(state.elapsed.count()) / 1000, state.written, state.target,
        state.published, state.applied, state.videos, state.rows);
    std::fflush(stdout);
    return;
  }
  if (drawn_) fmt::print("\x1b[{}A", kLines);
  drawn_ = true;
  Line("written", state.written, state.target, fmt::format("changes, {} videos", state.videos));
  Line("published", state.published, state.target,
       fmt::format("{} wait in the outbox", std::max<int64_t>(0, state.written - state.published)));
  Line("applied", state.applied, state.target,
       fmt::format("{} rows in the read model", state.rows));
  fmt::print("\x1b[2K  behind by {} changes after {:.1f} s\n",
             std::max<int64_t>(0, state.written - state.applied),
             static_cast<double>(state.elapsed.count()) / 1000);
  std::fflush(stdout);
}

void DemoView::Finish() {
  last_line_ = Millis(-10'000);
  Show(last_);
}

}  // namespace lockstep::examples
