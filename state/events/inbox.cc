#include "state/events/inbox.h"

#include <algorithm>

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kCountSince = R"(
SELECT (SELECT count(*) FROM {state}.inbox
         WHERE received_at >= $2
           AND generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $1))
     + (SELECT count(*) FROM {state}.key_state
         WHERE updated_at >= $2
           AND generation = (SELECT generation FROM {state}.active_slots
                              WHERE group_name = $1 AND by_versions)))";

constexpr std::string_view kAnyByVersions = R"(
SELECT count(*) FROM {state}.active_slots WHERE group_name IN ($1, $2) AND by_versions)";

constexpr std::string_view kCountMissing = R"(
SELECT count(*) AS all_of_them, count(*) FILTER (WHERE i.received_at >= $4) AS recent
  FROM {state}.inbox i
 WHERE i.generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $1)
   AND i.received_at >= $3
   AND NOT EXISTS (
     SELECT FROM {state}.inbox o
      WHERE o.generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $2)
        AND o.event_id = i.event_id))";

constexpr std::string_view kCountSnapshots = R"(
SELECT (SELECT count(*) FROM {state}.key_state k
         WHERE k.generation = s.generation AND k.snapshot_version IS NOT NULL)
     + (SELECT count(*) FROM {state}.dead_letters d
         WHERE d.generation = s.generation AND d.attributes ->> 'lockstep_kind' = 'snapshot')
  FROM {state}.active_slots s WHERE s.group_name = $1)";

constexpr std::string_view kHandled = R"(
SELECT DISTINCT i.event_id
  FROM unnest($2::uuid[], $3::text[]) AS w (id, key)
  JOIN {state}.inbox i ON i.generation = ANY ($1::int[]) AND i.event_id = w.id
 WHERE i.fate IN ('a', 's')
   AND NOT EXISTS (SELECT FROM {state}.parked p
                    WHERE p.generation = i.generation AND p.aggregate_key = w.key
                      AND p.event_id = i.event_id))";

// Row by row, whatever was known of the table when that was planned; in one order, as all batches.
constexpr std::string_view kCorrect = R"(
INSERT INTO {state}.inbox AS i (generation, event_id, fate)
SELECT $1::int, f.id, f.fate
  FROM unnest($2::uuid[], $3::"char"[]) AS f (id, fate)
 CROSS JOIN LATERAL (SELECT FROM {state}.inbox WHERE generation = $1 AND event_id = f.id LIMIT 1) k
ON CONFLICT (generation, event_id) DO UPDATE SET fate = EXCLUDED.fate WHERE i.fate <> EXCLUDED.fate)";

}  // namespace

absl::StatusOr<int64_t> Inbox::CountSince(postgres::Connection& connection,
                                          const ConsumerGroup& group, WallTime since) const {
  return connection.Number(schema_.Sql(kCountSince), group, since);
}

absl::StatusOr<Inbox::Missing> Inbox::CountMissing(postgres::Transaction& transaction,
                                                   const ConsumerGroup& in,
                                                   const ConsumerGroup& not_in, WallTime since,
                                                   WallTime lately) const {
  ASSIGN_OR_RETURN(const int64_t by_versions,
                   transaction.Number(schema_.Sql(kAnyByVersions), in, not_in));
  auto counted = by_versions > 0
                     ? MissingVersions(transaction, in, not_in, since, lately)
                     : transaction.Execute(schema_.Sql(kCountMissing), in, not_in, since, lately);
  ASSIGN_OR_RETURN(const auto rows, std::move(counted));
  return Missing{rows[0].Int("all_of_them"), rows[0].Int("recent")};
}

absl::StatusOr<int64_t> Inbox::CountSnapshots(postgres::Connection& connection,
                                              const ConsumerGroup& group) const {
  ASSIGN_OR_RETURN(auto transaction, connection.Begin());
  RETURN_IF_ERROR(transaction.Run("SET LOCAL statement_timeout = '1h'"));
  return transaction.Number(schema_.Sql(kCountSnapshots), group);
}

absl::StatusOr<std::unordered_set<std::string>> Inbox::Handled(
    postgres::Transaction& transaction, const std::string& generations,
    std::span<const envelope::Received* const> messages) const {
  postgres::Array ids, keys;
  for (const envelope::Received* const message : messages) {
    ids.AddPlain(message->event.event_id.value());
    keys.Add(message->aggregate_key);
  }
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kHandled), generations, ids, keys));
  std::unordered_set<std::string> handled;
  for (const postgres::Row row : rows) handled.insert(row.String("event_id"));
  return handled;
}

absl::Status Inbox::Correct(postgres::Transaction& transaction, int generation, Fates fates) const {
  if (fates.empty()) return absl::OkStatus();
  std::ranges::sort(fates);
  // One that is there twice (parked, and replayed) counts as applied if it was once.
  const auto again = std::ranges::unique(fates, {}, &Fates::value_type::first);
  fates.erase(again.begin(), again.end());
  postgres::Array ids, letters;
  for (const auto& [id, fate] : fates) {
    ids.AddPlain(id.value());
    const char letter = static_cast<char>(fate);
    letters.AddPlain({&letter, 1});
  }
  return transaction.Run(schema_.Sql(kCorrect), generation, ids, letters);
}

}  // namespace lockstep::state
