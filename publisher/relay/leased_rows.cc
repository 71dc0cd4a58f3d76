#include "publisher/relay/leased_rows.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

// Rows of one key come by sequence, which rises with the versions where the source serialises its
// writers. Versions are the contract, so where it did not, they decide.
void SortByVersion(std::vector<OutboxRow>& rows) {
  const auto inverted = [&] {
    std::map<std::pair<std::string, std::optional<std::string>>, int64_t> last;
    return std::any_of(rows.begin(), rows.end(), [&](const OutboxRow& row) {
      return row.version < std::exchange(last[{row.aggregate_type, row.tenant_id}], row.version);
    });
  };
  if (rows.size() < 2 || !inverted()) return;
  std::stable_sort(rows.begin(), rows.end(), [](const OutboxRow& a, const OutboxRow& b) {
    return std::tie(a.aggregate_type, a.tenant_id, a.version) <
           std::tie(b.aggregate_type, b.tenant_id, b.version);
  });
}

}  // namespace

void KeyQueues::MakeReady(const std::string& key, const Queue& queue) {
  if (!queue.under_way && !queue.waiting.empty()) {
    ready_[queue.waiting.front().row->topic].push_back(key);
  }
}

void KeyQueues::Add(std::vector<OutboxRow> rows, SteadyTime leased_at) {
  std::vector<std::string> order;
  std::unordered_map<std::string, std::vector<OutboxRow>> by_key;
  for (OutboxRow& row : rows) {
    auto& list = by_key[row.aggregate_id];
    if (list.empty()) order.push_back(row.aggregate_id);
    list.push_back(std::move(row));
  }
  for (const std::string& key : order) {
    auto& list = by_key[key];
    SortByVersion(list);
    Queue& queue = queues_[key];
    const bool was_empty = queue.waiting.empty();
    for (OutboxRow& row : list) {
      queue.waiting.push_back({std::make_shared<const OutboxRow>(std::move(row)), leased_at});
      ++waiting_;
    }
    if (was_empty) MakeReady(key, queue);
  }
}

std::optional<KeyQueues::Request> KeyQueues::Next(const LimitsOf& limits_of) {
  for (auto topic = ready_.begin(); topic != ready_.end();) {
    const auto found_limits = limits_of(topic->first);
    if (!found_limits.has_value()) {
      ++topic;
      continue;
    }
    const Limits& limits = *found_limits;
    Request request;
    int64_t bytes = 0;
    auto limit = static_cast<size_t>(limits.rows);
    auto& keys = topic->second;
    while (!keys.empty()) {
      const auto found = queues_.find(keys.front());
      if (found == queues_.end() || found->second.under_way || found->second.waiting.empty() ||
          found->second.waiting.front().row->topic != topic->first) {
        keys.pop_front();  // answered or taken since
        continue;
      }
      Queue& queue = found->second;
      bool took = false;
      while (!queue.waiting.empty() && queue.waiting.front().row->topic == topic->first) {
        Entry& entry = queue.waiting.front();
        const size_t allowed = std::min(limit, static_cast<size_t>(entry.request_limit));
        const int64_t size = entry.row->ByteSize() + 2000;  // attributes of ours
        if (!request.empty() && (request.size() >= allowed || bytes + size > limits.bytes)) break;
        limit = allowed;
        bytes += size;
        request.push_back(std::move(entry));
        queue.waiting.pop_front();
        --waiting_;
        took = true;
      }
      if (!took) break;  // full
      queue.under_way = true;
      keys.pop_front();
      if (request.size() >= limit || limits.one_key) break;
    }
    if (keys.empty()) {
      topic = ready_.erase(topic);
    } else if (request.empty()) {
      ++topic;
    }
    if (!request.empty()) return request;
  }
  return std::nullopt;
}

void KeyQueues::Succeeded(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return;
  found->second.under_way = false;
  if (found->second.waiting.empty()) {
    queues_.erase(found);
  } else {
    MakeReady(key, found->second);
  }
}

std::vector<KeyQueues::Entry> KeyQueues::Failed(const std::string& key) {
  std::vector<Entry> behind;
  const auto found = queues_.find(key);
  if (found == queues_.end()) return behind;
  for (Entry& entry : found->second.waiting) behind.push_back(std::move(entry));
  waiting_ -= behind.size();
  queues_.erase(found);
  return behind;
}

void KeyQueues::SendAgain(const std::string& key, std::vector<Entry> entries) {
  Queue& queue = queues_[key];
  queue.under_way = false;
  waiting_ += entries.size();
  queue.waiting.insert(queue.waiting.begin(), std::make_move_iterator(entries.begin()),
                       std::make_move_iterator(entries.end()));
  MakeReady(key, queue);
}

std::vector<KeyQueues::Entry> KeyQueues::TakeWaiting(
    const std::function<bool(const Entry&)>& pick) {
  std::vector<Entry> taken;
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    auto& waiting = queue->second.waiting;
    // From the first picked one on: a later row must not overtake it.
    const auto first = std::find_if(waiting.begin(), waiting.end(), pick);
    for (auto entry = first; entry != waiting.end(); ++entry) taken.push_back(std::move(*entry));
    waiting.erase(first, waiting.end());
    if (waiting.empty() && !queue->second.under_way) {
      queue = queues_.erase(queue);
    } else {
      ++queue;
    }
  }
  waiting_ -= taken.size();
  return taken;
}

void KeyQueues::AddTopicsOfWaiting(std::set<std::string>& topics) const {
  for (const auto& [key, queue] : queues_) {
    for (const Entry& entry : queue.waiting) topics.insert(entry.row->topic);
  }
}

void KeyQueues::ForEachWaiting(const std::function<void(Entry&)>& visit) {
  for (auto& [key, queue] : queues_) {
    for (Entry& entry : queue.waiting) visit(entry);
  }
}

void LeasedRows::Add(std::vector<OutboxRow> rows, SteadyTime leased_at) {
  for (const OutboxRow& row : rows) ++unmarked_[row.lock_token];
  queues_.Add(std::move(rows), leased_at);
}

std::optional<int64_t> LeasedRows::Send(SteadyTime now, const ShapeOf& shape_of, int max_requests) {
  const auto limits_of = [&](const std::string& topic) -> std::optional<KeyQueues::Limits> {
    const RequestShape shape = shape_of(topic);
    if (shape.counted && counted_ >= max_requests) return std::nullopt;
    return KeyQueues::Limits{.rows = shape.rows, .one_key = shape.one_key};
  };
  auto entries = queues_.Next(limits_of);
  if (!entries.has_value()) return std::nullopt;
  const bool counted = shape_of(entries->front().row->topic).counted;
  rows_under_way_ += entries->size();
  counted_ += counted ? 1 : 0;
  under_way_[next_request_] = {*std::move(entries), now, counted};
  return next_request_++;
}

std::optional<LeasedRows::Request> LeasedRows::Answered(int64_t request) {
  auto found = under_way_.extract(request);
  if (found.empty()) return std::nullopt;
  rows_under_way_ -= found.mapped().entries.size();
  counted_ -= found.mapped().counted ? 1 : 0;
  return std::move(found.mapped());
}

void LeasedRows::Marked(const OutboxRow& row) {
  const auto lease = unmarked_.find(row.lock_token);
  if (lease != unmarked_.end() && --lease->second == 0) unmarked_.erase(lease);
}

int LeasedRows::Unmarked(const std::string& lease) const {
  const auto found = unmarked_.find(lease);
  return found == unmarked_.end() ? 0 : found->second;
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

std::set<std::string> LeasedRows::Topics() const {
  std::set<std::string> topics;
  for (const auto& [id, request] : under_way_) {
    topics.insert(request.entries.front().row->topic);  // a request is of one
  }
  queues_.AddTopicsOfWaiting(topics);
  return topics;
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
