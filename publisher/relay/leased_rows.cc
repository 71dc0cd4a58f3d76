#include "publisher/relay/leased_rows.h"

#include <algorithm>
#include <set>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {

void LeasedRows::Add(std::vector<OutboxRow> rows, SteadyTime leased_at) {
  for (const OutboxRow& row : rows) ++unmarked_[row.lock_token];
  queues_.Add(std::move(rows), leased_at);
}

std::optional<int64_t> LeasedRows::Send(SteadyTime now) {
  auto entries = queues_.Next(KeyQueues::Limits());
  if (!entries.has_value()) return std::nullopt;
  rows_under_way_ += entries->size();
  under_way_[next_request_] = {*std::move(entries), now};
  return next_request_++;
}

std::optional<LeasedRows::Request> LeasedRows::Answered(int64_t request) {
  auto found = under_way_.extract(request);
  if (found.empty()) return std::nullopt;
  rows_under_way_ -= found.mapped().entries.size();
  return std::move(found.mapped());
}

void LeasedRows::Marked(const OutboxRow& row) {
  const auto lease = unmarked_.find(row.lock_token);
  if (lease != unmarked_.end() && --lease->second == 0) unmarked_.erase(lease);
}

absl::StatusOr<std::vector<KeyQueues::Entry>> LeasedRows::Renew(OutboxStore& store, Millis lock_ttl,
                                                                SteadyTime now) {
  if (now - last_look_ < lock_ttl / 6) return std::vector<KeyQueues::Entry>();
  last_look_ = now;
  // A lease that ended while the database was away may be another's: its rows, and all of that
  // claim, are no longer "in hand" for the claim rule.
  const auto lapsed = queues_.TakeWaiting(
      [&](const KeyQueues::Entry& entry) { return now - entry.leased_at >= lock_ttl; });
  for (const KeyQueues::Entry& entry : lapsed) unmarked_.erase(entry.row->lock_token);
  std::vector<RowPtr> rows;
  std::vector<KeyQueues::Entry*> entries;
  const auto due = [&](const KeyQueues::Entry& entry) {
    return now - entry.leased_at >= lock_ttl / 3;
  };
  const auto note = [&](KeyQueues::Entry& entry) {
    if (!due(entry)) return;
    rows.push_back(entry.row);
    entries.push_back(&entry);
  };
  queues_.ForEachWaiting(note);
  for (auto& [id, request] : under_way_) {
    for (KeyQueues::Entry& entry : request.entries) note(entry);
  }
  if (rows.empty()) return std::vector<KeyQueues::Entry>();
  ASSIGN_OR_RETURN(const auto kept, store.Renew(rows));
  const std::set<int64_t> ours(kept.begin(), kept.end());
  for (KeyQueues::Entry* entry : entries) {
    if (ours.contains(entry->row->sequence)) entry->leased_at = now;
  }
  return queues_.TakeWaiting(due);  // what is due still was not renewed
}

bool LeasedRows::AnyUnderWay(const std::function<bool(const OutboxRow&)>& pick) const {
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& request) {
    return std::any_of(request.second.entries.begin(), request.second.entries.end(),
                       [&](const KeyQueues::Entry& entry) { return pick(*entry.row); });
  });
}

std::vector<std::string> LeasedRows::live_tokens() const {
  std::vector<std::string> tokens;
  for (const auto& [token, rows] : unmarked_) tokens.push_back(token);
  return tokens;
}

}  // namespace lockstep::publisher
