#include "state/events/opening.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "platform/status.h"

namespace lockstep::state {
namespace {

// $1 generation, $2 ids, $3 how many, $4 the group, $5 keys, $6 what is expected of each; where
// versions are followed also $7 the version to move to, $8 the one before as a negative number, $9
// that of a snapshot, and $10 the event that settles it. Mostly all events are new: then one NULL
// says so, and no id travels back.
constexpr std::string_view kInbox = R"(
WITH added AS (
  INSERT INTO {state}.inbox (generation, event_id, fate)
  SELECT $1::int, id, fate FROM unnest($2::uuid[], $6::"char"[]) AS a (id, fate)
  ON CONFLICT DO NOTHING
  RETURNING event_id),
fresh AS MATERIALIZED (
  SELECT count(*) = $3::bigint AS all_new,
         CASE WHEN count(*) < $3::bigint THEN coalesce(array_agg(event_id), '{}') END AS ids
    FROM added),
)";

constexpr std::string_view kLockKeys = R"(
locked AS MATERIALIZED (
  SELECT aggregate_key, settled_version, last_event, NULL::bigint AS previous_version,
         blocked_version, snapshot_version, parked, open
    FROM {state}.key_state
   WHERE generation = $1::int AND aggregate_key = ANY ($5::text[])
     AND (SELECT all_new FROM fresh)
   ORDER BY aggregate_key
     FOR UPDATE))";

// previous_version says whether a row was moved: NULL in the answer means that it was only locked,
// a negative one that it was made. A span that is not smooth comes with a NULL there and its
// baseline as settled_version; a snapshot alone with a number that no row can have settled, so that
// a row which is there is only locked, and one that is made does not travel back.
constexpr std::string_view kLockAndMove = R"(
locked AS (
  INSERT INTO {state}.key_state AS k
         (generation, aggregate_key, settled_version, previous_version, snapshot_version,
          last_event)
  SELECT $1::int, key, settled, previous, snapshot, last
    FROM unnest($5::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::uuid[])
         AS c (key, settled, previous, snapshot, last)
   WHERE (SELECT all_new FROM fresh)
  ON CONFLICT (generation, aggregate_key) DO UPDATE
     SET settled_version = CASE WHEN k.settled_version = -EXCLUDED.previous_version
                                 AND k.blocked_version IS NULL AND k.parked = 0 AND NOT k.open
                                THEN EXCLUDED.settled_version ELSE k.settled_version END,
         last_event = CASE WHEN k.settled_version = -EXCLUDED.previous_version
                            AND k.blocked_version IS NULL AND k.parked = 0 AND NOT k.open
                           THEN EXCLUDED.last_event ELSE k.last_event END,
         updated_at = CASE WHEN k.settled_version = -EXCLUDED.previous_version
                            AND k.blocked_version IS NULL AND k.parked = 0 AND NOT k.open
                           THEN EXCLUDED.updated_at ELSE k.updated_at END,
         previous_version = CASE WHEN k.settled_version = -EXCLUDED.previous_version
                                  AND k.blocked_version IS NULL AND k.parked = 0 AND NOT k.open
                                 THEN -EXCLUDED.previous_version END
  RETURNING aggregate_key, settled_version, last_event, previous_version, blocked_version,
            snapshot_version, parked, open))";

constexpr std::string_view kAnswer = R"(
SELECT g.epoch, g.epoch_token, g.paused_at, f.ids,
       k.aggregate_key, CASE WHEN k.previous_version < 0 THEN 0 ELSE k.settled_version END
       AS settled_version, CASE WHEN k.previous_version < 0 THEN NULL ELSE k.last_event END
       AS last_event, k.blocked_version, k.snapshot_version, k.parked, k.open
  FROM {state}.consumer_groups g
 CROSS JOIN fresh f
  LEFT JOIN (SELECT * FROM locked WHERE previous_version IS NULL)";
// One that was made for a span which begins in the middle has its beginning still to come.
constexpr std::string_view kMadeTooSoon = " OR previous_version < 0 AND snapshot_version IS NULL";
constexpr std::string_view kAnswerEnd = R"() k ON true
 WHERE g.group_id = $4::int)";

constexpr size_t kUuidLength = 36;

// Of "{uuid,uuid}".
std::unordered_set<std::string_view> Elements(std::string_view array) {
  std::unordered_set<std::string_view> ids;
  for (size_t at = 1; at + kUuidLength <= array.size(); at += kUuidLength + 1) {
    ids.insert(array.substr(at, kUuidLength));
  }
  return ids;
}

// What a row settles that is made for the span.
int64_t Baseline(const VersionSpan& span, bool from_the_first) {
  if (span.smooth) return span.last;
  if (span.snapshot) return span.first;
  return from_the_first ? 0 : span.first - 1;
}

std::optional<int64_t> Previous(const VersionSpan& span) {
  constexpr int64_t kNoRowHasIt = std::numeric_limits<int64_t>::max();
  if (span.smooth) return 1 - span.first;
  return span.alone ? std::optional(-kNoRowHasIt) : std::nullopt;
}

void AddSpans(postgres::Params& params, const std::vector<VersionSpan>& spans,
              bool from_the_first) {
  postgres::Array settled, previous, snapshot, last;
  for (const VersionSpan& span : spans) {
    settled.Add(Baseline(span, from_the_first));
    previous.Add(Previous(span));
    snapshot.Add(span.snapshot ? std::optional(span.first) : std::nullopt);
    span.settles.empty() ? last.AddNull() : last.AddPlain(span.settles);
  }
  params.Add(settled).Add(previous).Add(snapshot).Add(last);
}

}  // namespace

Arrivals::Arrivals(std::span<const envelope::Received* const> items, const std::vector<Fate>& fates,
                   bool by_versions)
    : first(items.size(), true) {
  std::map<std::string_view, size_t> by_id;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& id = items[i]->event.event_id.value();
    if (!id.empty()) first[i] = by_id.emplace(id, i).second;
  }
  sorted.reserve(by_id.size());
  for (const auto& [id, i] : by_id) {
    if (!by_versions || KnownById(*items[i])) sorted.emplace_back(items[i], fates[i]);
  }
}

Opening::Opening(const Schema& schema, bool track_versions, bool from_the_first)
    : track_versions_(track_versions),
      from_the_first_(from_the_first),
      enter_(schema, "batch_enter",
             fmt::format("{}{}{}{}{}", kInbox, track_versions ? kLockAndMove : kLockKeys, kAnswer,
                         from_the_first ? kMadeTooSoon : "", kAnswerEnd)) {}

absl::StatusOr<Opening::Answer> Opening::Enter(postgres::Transaction& transaction,
                                               const GroupEpoch& under,
                                               std::span<const envelope::Received* const> items,
                                               const Arrivals& arrivals,
                                               const std::vector<VersionSpan>& spans) const {
  postgres::Array ids(arrivals.sorted.size() * (kUuidLength + 1));
  postgres::Array fates, keys;
  for (const auto& [item, fate] : arrivals.sorted) {
    ids.AddPlain(item->event.event_id.value());
    const char letter = static_cast<char>(fate);
    fates.AddPlain({&letter, 1});
  }
  for (const VersionSpan& span : spans) keys.Add(span.aggregate_key);
  postgres::Params params;
  params.Add(under.generation).Add(ids).Add(static_cast<int64_t>(ids.size())).Add(under.group_id);
  params.Add(keys).Add(fates);
  if (track_versions_) AddSpans(params, spans, from_the_first_);
  ASSIGN_OR_RETURN(const postgres::Result rows, transaction.Execute(enter_, params));
  Answer answer{.epoch = rows, .fresh = arrivals.first};
  if (rows.empty() || rows[0].IsNull("ids")) {
    answer.not_moved = ReadKeyRows(rows);
    return answer;
  }
  answer.all_new = false;
  const auto added = Elements(rows[0].Text("ids"));
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& id = items[i]->event.event_id.value();
    const bool asked = !id.empty() && (!under.by_versions || KnownById(*items[i]));
    answer.fresh[i] = answer.fresh[i] && (!asked || added.contains(id));
  }
  return answer;
}

absl::StatusOr<KeyRows> Opening::Lock(postgres::Transaction& transaction, const GroupEpoch& under,
                                      const std::vector<VersionSpan>& spans) const {
  if (spans.empty()) return KeyRows();
  ASSIGN_OR_RETURN(Answer answer, Enter(transaction, under, {}, Arrivals(), spans));
  return std::move(answer.not_moved);
}

}  // namespace lockstep::state
