#include "publisher/relay/marks.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {

void Marks::Published(RowPtr row, std::string message_id, SteadyTime now, bool dedup_hit) {
  if (published_.empty()) since_ = now;
  published_unblocks_ = published_unblocks_ || row->attempts > 0;
  published_.push_back({std::move(row), std::move(message_id), dedup_hit});
}

std::optional<Millis> Marks::Left(SteadyTime now) const {
  if (empty()) return std::nullopt;
  if (urgent()) return Millis(0);
  return std::max(Millis(0), std::chrono::ceil<Millis>(since_ + kGather - now));
}

template <class Outcome>
absl::Status Marks::Account(OutboxStore& store, std::vector<Outcome> outcomes,
                            const std::vector<int64_t>& kept, const Marked& marked) {
  for (const Outcome& outcome : outcomes) marked(*outcome.row);
  if (kept.size() == outcomes.size()) return absl::OkStatus();
  const std::unordered_set<int64_t> ours(kept.begin(), kept.end());
  std::erase_if(outcomes,
                [&](const auto& outcome) { return ours.contains(outcome.row->sequence); });
  if (outcomes.empty()) return absl::OkStatus();
  std::vector<int64_t> lost;
  for (const Outcome& outcome : outcomes) lost.push_back(outcome.row->sequence);
  const auto states = store.AuditLost(lost, owner_);
  for (const Outcome& outcome : outcomes) {
    const bool known = states.ok() && states->contains(outcome.row->sequence);
    events_.OnRow({.kind = RowEvent::Kind::kLostLease,
                   .row = *outcome.row,
                   .code = "STORAGE.CONFLICT",
                   .state = known ? states->at(outcome.row->sequence) : "unknown"});
  }
  return states.status();
}

template <class Outcome>
std::vector<std::string> Marks::EndedWith(const std::vector<Outcome>& outcomes,
                                          const Unmarked& unmarked) {
  std::map<std::string, int> rows;
  for (const Outcome& outcome : outcomes) ++rows[outcome.row->lock_token];
  std::vector<std::string> ended;
  for (const auto& [lease, count] : rows) {
    if (unmarked(lease) == count) ended.push_back(lease);
  }
  return ended;
}

absl::Status Marks::Write(OutboxStore& store, const Marked& marked, const Unmarked& unmarked) {
  if (!failed_.empty()) {
    ASSIGN_OR_RETURN(const auto kept,
                     store.MarkFailed(failed_, owner_, EndedWith(failed_, unmarked)));
    RETURN_IF_ERROR(Account(store, std::exchange(failed_, {}), kept, marked));
  }
  if (!published_.empty()) {
    ASSIGN_OR_RETURN(const auto kept,
                     store.MarkPublished(published_, owner_, EndedWith(published_, unmarked)));
    published_unblocks_ = false;
    RETURN_IF_ERROR(Account(store, std::exchange(published_, {}), kept, marked));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
