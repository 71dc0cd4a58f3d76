#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock.h"

namespace lockstep::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// What makes two lines the same: the ids of single events in them may differ.
struct LineKind {
  Level level = Level::kInfo;
  std::string message;
  std::vector<std::pair<std::string, std::string>> source;  // group=…, table=…, code=…

  friend auto operator<=>(const LineKind&, const LineKind&) = default;
};

// Keeps a line that comes again and again from filling the log: of lines of one kind, `burst`
// are written per interval; the rest is counted, and told in one line when the interval is over.
// No thread of its own; safe from any.
class RepeatLimit {
 public:
  struct Options {
    int burst = 10;  // 0 = no limit
    Millis interval{10'000};
  };
  struct Told {
    LineKind kind;
    int64_t times = 0;
  };

  RepeatLimit() = default;
  explicit RepeatLimit(Options options) : options_(options) {}

  // Forgets what was counted.
  void Restart(Options options);

  // Whether this line is to be written.
  bool Allow(const LineKind& kind, SteadyTime now);

  // Kinds whose interval is over by then and of which lines were left out, each once.
  std::vector<Told> TakeDue(SteadyTime now);

 private:
  struct Window {
    SteadyTime began;
    int written = 0;
    int64_t left_out = 0;
  };
  bool Over(const Window& window, SteadyTime now) const {
    return now - window.began >= options_.interval;
  }

  std::mutex mu_;
  Options options_;
  std::map<LineKind, Window> windows_;
};

}  // namespace lockstep::log
