#include "publisher/relay/marks.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {

void Marks::Published(Row row, std::string message_id, SteadyTime now) {
  if (published_.empty()) since_ = now;
  // Only a row that failed before can have others held behind it.
  if (row->attempts > 0) published_unblocking_.push_back(row->sequence);
  published_.push_back({row->sequence, row->lock_token, std::move(message_id)});
  published_rows_.push_back(std::move(row));
}

void Marks::Failed(Row row, RowFailure failure, bool frees_followers) {
  if (frees_followers) failed_unblocking_.push_back(row->sequence);
  failure.sequence = row->sequence;
  failure.lock_token = row->lock_token;
  failed_.push_back(std::move(failure));
  failed_rows_.push_back(std::move(row));
}

std::optional<Millis> Marks::Left(SteadyTime now) const {
  if (empty()) return std::nullopt;
  if (urgent()) return Millis(0);
  return std::max(Millis(0), std::chrono::ceil<Millis>(since_ + kGather - now));
}

absl::Status Marks::Account(OutboxStore& store, const std::vector<Row>& rows,
                            const std::vector<int64_t>& kept,
                            const std::function<void(const OutboxRow&)>& marked) {
  std::vector<int64_t> lost;
  if (kept.size() < rows.size()) {
    const std::unordered_set<int64_t> ours(kept.begin(), kept.end());
    for (const Row& row : rows) {
      if (!ours.contains(row->sequence)) lost.push_back(row->sequence);
    }
  }
  for (const Row& row : rows) marked(*row);
  if (lost.empty()) return absl::OkStatus();
  const auto states = store.AuditLost(lost, owner_);
  const std::unordered_set<int64_t> gone(lost.begin(), lost.end());
  for (const Row& row : rows) {
    if (!gone.contains(row->sequence)) continue;
    events_.OnLostLease(*row, states.ok() && states->contains(row->sequence)
                                  ? states->at(row->sequence)
                                  : "unknown");
  }
  return states.status();
}

absl::Status Marks::Write(OutboxStore& store, const std::function<void(const OutboxRow&)>& marked) {
  if (!failed_.empty()) {
    ASSIGN_OR_RETURN(const auto kept, store.MarkFailed(failed_, failed_unblocking_));
    const std::vector<Row> rows = std::exchange(failed_rows_, {});
    failed_.clear();
    failed_unblocking_.clear();
    RETURN_IF_ERROR(Account(store, rows, kept, marked));
  }
  if (!published_.empty()) {
    ASSIGN_OR_RETURN(const auto kept, store.MarkPublished(published_, published_unblocking_));
    const std::vector<Row> rows = std::exchange(published_rows_, {});
    published_.clear();
    published_unblocking_.clear();
    RETURN_IF_ERROR(Account(store, rows, kept, marked));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
