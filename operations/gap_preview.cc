#include "operations/gap_preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "state/groups/epochs.h"

namespace lockstep::operations {
namespace {

constexpr int kMostWaiting = 10'000;  // of an aggregate that are looked at

}  // namespace

absl::StatusOr<GapPreview> GapPreview::Open(const projections::Projector& projector,
                                            const runner::BatchRules& rules,
                                            const state::Schema& schema, const ConsumerGroup& group,
                                            postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const state::GroupEpoch live, state::Epochs(schema, group).Load(connection));
  return GapPreview(projector, rules, schema, live.generation, connection);
}

absl::StatusOr<GapPreview::Key> GapPreview::Load(const std::string& key) const {
  Key loaded;
  ASSIGN_OR_RETURN(state::KeyRows stored, keys_.Read(*connection_, generation_, {key}));
  loaded.row = stored[key];
  if (loaded.row.parked == 0) return loaded;
  ASSIGN_OR_RETURN(const auto rows, parking_.List(*connection_, generation_, key, kMostWaiting));
  for (const postgres::Row row : rows) {
    loaded.waiting.push_back({.version = row.Int("version"), .parks_on_gap = true});
  }
  return loaded;
}

absl::StatusOr<std::optional<std::string>> GapPreview::WhyItWaits(const envelope::Event& event) {
  const std::string name = envelope::AggregateKey(event.aggregate);
  auto found = aggregates_.find(name);
  if (found == aggregates_.end()) {
    ASSIGN_OR_RETURN(Key loaded, Load(name));
    found = aggregates_.emplace(name, std::move(loaded)).first;
  }
  auto& [row, items] = found->second;
  const auto place = std::ranges::find_if(
      items, [&](const runner::PlanItem& item) { return item.version > event.version; });
  const size_t nth = place - items.begin();
  items.insert(place, {.version = event.version,
                       .parks_on_gap = rules_.ParksOnGap(projector_->ParksOnGap(event)),
                       .snapshot = event.is_snapshot(),
                       .ends = key_rules_.from_the_first && !event.is_snapshot() &&
                               projector_->LeavesNothing(event)});
  row = runner::PlanKey(row, items, key_rules_);
  const runner::Fate fate = items[nth].fate;
  std::erase_if(items, [](const runner::PlanItem& item) { return !runner::Waits(item.fate); });
  row.parked = static_cast<int>(items.size());
  if (!runner::Waits(fate)) return std::optional<std::string>();
  if (fate == runner::Fate::kWaitsForDeadLetter) {
    return std::optional(fmt::format("version {} of its aggregate is a dead letter", *row.blocked));
  }
  return std::optional(
      fmt::format("version {} of its aggregate has not come", row.settled.value_or(0) + 1));
}

}  // namespace lockstep::operations
