#include "state/testing/memory_offset_provider.h"

#include <algorithm>
#include <chrono>

namespace lockstep::state {
namespace {

// As Postgres keeps it: microseconds.
Position Rounded(Position position) {
  position.publish_time = std::chrono::floor<std::chrono::microseconds>(position.publish_time);
  return position;
}

}  // namespace

absl::StatusOr<std::optional<GroupOffset>> MemoryOffsetProvider::Load(postgres::Transaction*,
                                                                      const ConsumerGroup& group) {
  std::lock_guard lock(mu_);
  std::optional<GroupOffset> least;
  for (const auto& [key, offset] : lanes_) {
    if (std::get<0>(key) != group) continue;
    const Millis lag = least ? std::max(least->lag, offset.lag) : offset.lag;
    if (!least || offset.position < least->position) least = offset;
    least->lag = lag;
  }
  if (least) return least;
  const auto reset = resets_.find(group);
  if (reset != resets_.end()) least = reset->second;
  return least;
}

absl::Status MemoryOffsetProvider::Save(postgres::Transaction*, const LaneOffset& offset) {
  std::lock_guard lock(mu_);
  const Position position = Rounded(offset.position);
  const auto [lane, added] = lanes_.try_emplace({offset.group, offset.instance, offset.lane});
  if (!added && position <= lane->second.position) return absl::OkStatus();
  lane->second = {.subscription = offset.subscription,
                  .position = position,
                  .epoch = offset.epoch,
                  .lag = offset.lag,
                  .updated_at = Clock::System().Now(),
                  .updated_by = offset.instance};
  return absl::OkStatus();
}

absl::Status MemoryOffsetProvider::Reset(postgres::Transaction*, const ResetRecord& record) {
  std::lock_guard lock(mu_);
  std::erase_if(lanes_, [&](const auto& lane) { return std::get<0>(lane.first) == record.group; });
  resets_.erase(record.group);
  if (record.to) {
    resets_[record.group] = {.subscription = record.subscription,
                             .position = Rounded(*record.to),
                             .epoch = record.epoch,
                             .updated_at = Clock::System().Now(),
                             .updated_by = record.operator_name};
  }
  audit_.push_back(record);
  return absl::OkStatus();
}

std::vector<ResetRecord> MemoryOffsetProvider::audit() const {
  std::lock_guard lock(mu_);
  return audit_;
}

}  // namespace lockstep::state
