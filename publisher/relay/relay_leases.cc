// What the relay does to keep, and to give up, what it has leased.
#include <algorithm>
#include <set>
#include <utility>

#include "platform/status.h"
#include "publisher/relay/relay.h"

namespace lockstep::publisher {

absl::Status Relay::RenewLeases() {
  const SteadyTime now = environment_.clock->Steady();
  const auto due = [&](const KeyQueues::Entry& entry) {
    return now - entry.leased_at >= options_.lock_ttl / 3;
  };
  if (now - oldest_lease_ < options_.lock_ttl / 6) return absl::OkStatus();
  oldest_lease_ = now;  // of the next look
  // A lease that ended while the database was away may be another's: its rows, and all of that
  // claim, are no longer "in hand" for the claim rule.
  auto lapsed = queues_.TakeWaiting(
      [&](const KeyQueues::Entry& entry) { return now - entry.leased_at >= options_.lock_ttl; });
  for (const KeyQueues::Entry& entry : lapsed) live_tokens_.erase(entry.row->lock_token);
  std::vector<PublishedRow> rows;
  std::vector<KeyQueues::Entry*> renewed;
  const auto note = [&](KeyQueues::Entry& entry) {
    if (!due(entry)) return;
    rows.push_back({entry.row->sequence, entry.row->lock_token, ""});
    renewed.push_back(&entry);
  };
  queues_.ForEachWaiting(note);
  for (auto& [id, request] : under_way_) {
    for (KeyQueues::Entry& entry : request.entries) note(entry);
  }
  if (rows.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto kept, store_->Renew(rows));
  const std::set<int64_t> ours(kept.begin(), kept.end());
  std::set<int64_t> lost;
  for (KeyQueues::Entry* entry : renewed) {
    if (ours.contains(entry->row->sequence)) {
      entry->leased_at = now;
    } else {
      lost.insert(entry->row->sequence);
    }
  }
  if (lost.empty()) return absl::OkStatus();
  auto dropped = queues_.TakeWaiting(
      [&](const KeyQueues::Entry& entry) { return lost.contains(entry.row->sequence); });
  // Given back by its token: one that is lost is counted there.
  GiveBack(std::move(dropped), Millis(0));
  return absl::OkStatus();
}

void Relay::TakeShards() {
  std::optional<std::pair<std::vector<int>, int>> fresh;
  int64_t change = 0;
  {
    std::scoped_lock lock(mu_);
    fresh.swap(new_shards_);
    change = changes_;
    if (!fresh.has_value()) return;
    leaving_ = true;
  }
  shards_ = std::move(fresh->first);
  shard_count_ = fresh->second;
  plan_ = {};
  look_ = true;
  owns_first_ = std::find(shards_.begin(), shards_.end(), 0) != shards_.end();
  events_.OnShards(shards_, shard_count_);
  GiveBack(queues_.TakeWaiting([&](const KeyQueues::Entry& entry) { return !Mine(entry); }),
           Millis(0));
  NoteLeaving();
  std::scoped_lock lock(mu_);
  followed_ = change;
}

void Relay::NoteLeaving() {
  if (!leaving_) return;                // which this thread alone changes
  bool leaving = !settlement_.empty();  // of which shard is not worth knowing
  for (const auto& [id, request] : under_way_) {
    leaving = leaving || !std::all_of(request.entries.begin(), request.entries.end(),
                                      [&](const auto& entry) { return Mine(entry); });
  }
  std::scoped_lock lock(mu_);
  leaving_ = leaving;
}

bool Relay::Mine(const KeyQueues::Entry& entry) const {
  return std::find(shards_.begin(), shards_.end(), entry.row->shard) != shards_.end();
}

}  // namespace lockstep::publisher
