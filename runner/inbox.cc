#include "runner/inbox.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include "platform/defect.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::runner {
namespace {

// Mostly all are new: then one NULL says so, and no id travels back.
constexpr std::string_view kInsert = R"(
WITH added AS (
  INSERT INTO {state}.inbox (generation, event_id)
  SELECT $1::int, id FROM unnest($2::uuid[]) AS id
  ON CONFLICT DO NOTHING
  RETURNING event_id)
SELECT CASE WHEN count(*) < $3 THEN coalesce(array_agg(event_id), '{}') END FROM added)";

constexpr size_t kUuidLength = 36;

// Of "{uuid,uuid}".
std::unordered_set<std::string_view> Elements(std::string_view array) {
  std::unordered_set<std::string_view> ids;
  for (size_t at = 1; at + kUuidLength <= array.size(); at += kUuidLength + 1) {
    ids.insert(array.substr(at, kUuidLength));
  }
  return ids;
}

}  // namespace

Inbox::Inbox(const offsets::StateSchema& schema) : insert_(schema, "inbox_insert", kInsert) {}

absl::StatusOr<std::vector<bool>> Inbox::Insert(postgres::Transaction& transaction, int generation,
                                                std::span<Inbound* const> items) const {
  std::vector<bool> fresh(items.size(), true);
  std::vector<size_t> order;
  order.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i]->event.event_id.empty()) order.push_back(i);
  }
  if (order.empty()) return fresh;
  const auto id = [&](size_t i) -> const std::string& { return items[i]->event.event_id.value(); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return id(a) < id(b); });

  postgres::Array ids(order.size() * (kUuidLength + 1));
  for (size_t n = 0; n < order.size(); ++n) {
    if (n > 0 && id(order[n]) == id(order[n - 1])) {
      fresh[order[n]] = false;  // twice in this very batch
    } else {
      ids.AddPlain(id(order[n]));
    }
  }
  const auto count = static_cast<int64_t>(ids.size());
  ASSIGN_OR_RETURN(
      const postgres::Result added,
      transaction.Execute(insert_, postgres::Params().Add(generation).Add(ids).Add(count)));
  if (added.IsNull(0, 0) || defect::On("skip-inbox")) return fresh;
  const auto known = Elements(added.Text(0, 0));
  for (const size_t i : order) fresh[i] = fresh[i] && known.contains(id(i));
  return fresh;
}

}  // namespace lockstep::runner
