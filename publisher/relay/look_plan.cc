#include "publisher/relay/look_plan.h"

#include <algorithm>

namespace lockstep::publisher {
namespace {

// From the start again at least this often under load …
constexpr Millis kStartEvery{200};
// … unless that takes more than a tenth of the time …
constexpr int kCostFactor = 10;
// … but not rarer than this.
constexpr Millis kStartAtLeastEvery{60'000};
// A claim of some hundred rows is well below it.
constexpr Millis kSlow{20};

}  // namespace

bool LookPlan::StartIsSlow() const { return start_cost_ > kSlow; }

Millis LookPlan::Patience() const {
  return std::clamp(start_cost_ * kCostFactor, kStartEvery, kStartAtLeastEvery);
}

ClaimCursor& LookPlan::Next(SteadyTime now) {
  const bool due = !measured_ || now - last_start_ > Patience();
  begins_ = due || !going_on_;
  if (!begins_) return cursor_;
  from_start_ = due || !StartIsSlow();
  cursor_ = from_start_ ? ClaimCursor() : floor_;
  return cursor_;
}

void LookPlan::Looked(SteadyTime began, SteadyTime ended, bool full, const std::string& floor) {
  if (begins_ && from_start_) {
    measured_ = true;
    last_start_ = began;
    start_cost_ = std::chrono::ceil<Millis>(ended - began);
  }
  going_on_ = full;
  wanted_ = full;
  if (full) return;
  whole_ = from_start_;
  floor_ = {floor, 0};
}

std::optional<Millis> LookPlan::UntilStart(SteadyTime now) const {
  if (whole_ || !measured_) return std::nullopt;
  const auto waited = std::chrono::floor<Millis>(now - last_start_);
  return std::max(Millis(1), Patience() - waited + Millis(1));
}

}  // namespace lockstep::publisher
