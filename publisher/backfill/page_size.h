#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/clock.h"

namespace lockstep::publisher {

// How many rows the next page has: as many as the time of the last ones says that the budget
// allows, never more than twice as many as before, and no more than a second's share of the
// throttle. Owned by one thread.
class PageSize {
 public:
  static constexpr int kFirst = 100;
  static constexpr int kMost = 10'000;

  PageSize(Millis budget, int64_t rows_per_second)
      : budget_(budget),
        most_(rows_per_second > 0 ? static_cast<int>(std::min<int64_t>(rows_per_second, kMost))
                                  : kMost),
        rows_(std::min(kFirst, most_)) {}

  int rows() const { return rows_; }

  // A page of `rows` took so long. What was cut short says nothing of a full one, unless it was
  // slow.
  void Took(int rows, Millis time) {
    const double each = static_cast<double>(std::max<int64_t>(time.count(), 1)) / std::max(rows, 1);
    const double fit = static_cast<double>(budget_.count()) / each;
    if (rows < rows_ && fit > rows_) return;
    rows_ = static_cast<int>(std::clamp(fit, 1.0, std::min<double>(most_, 2.0 * rows_)));
  }
  // It took longer than it may at all.
  void Halve() { rows_ = std::max(1, rows_ / 2); }

 private:
  const Millis budget_;
  const int most_;
  int rows_;
};

}  // namespace lockstep::publisher
