#include "state/groups/verifications.h"

#include <nlohmann/json.hpp>

#include "platform/status.h"

namespace lockstep::state {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kDeclare = R"(
WITH forgotten AS (
  DELETE FROM {state}.verifications
   WHERE group_name = $1 AND declared_at < now() - interval '7 days')
INSERT INTO {state}.verifications AS v (group_name, backfill, projection)
SELECT $1, w.backfill, w.projection FROM unnest($2::text[], $3::text[]) AS w (backfill, projection)
ON CONFLICT (group_name, backfill, projection) DO UPDATE SET declared_at = now())";

// A pause is never longer than a pass may take: so a shorter `every` is followed at once. A pass
// that is not under way begins with its first range.
constexpr std::string_view kClaim = R"(
WITH one AS (
  SELECT v.group_name, v.backfill, v.projection, d.due, d.listed
    FROM {state}.verifications v
    JOIN unnest($2::text[], $3::text[]) AS w (backfill, projection)
      ON w.backfill = v.backfill AND w.projection = v.projection
   CROSS JOIN LATERAL (
     SELECT v.due_at <= now() OR v.updated_at <= now() - $5::bigint * interval '1 ms' AS due,
            (SELECT count(*) FROM {state}.verify_differences f
              WHERE f.group_name = v.group_name AND f.backfill = v.backfill
                AND f.projection = v.projection) AS listed) d
   WHERE v.group_name = $1 AND (v.lease_until IS NULL OR v.lease_until < now())
     AND (d.due OR (d.listed > 0 AND v.failures = 0
                    AND v.looked_at <= now() - $6::bigint * interval '1 ms'))
   ORDER BY d.due DESC, v.due_at
   LIMIT 1
     FOR UPDATE OF v SKIP LOCKED)
UPDATE {state}.verifications v
   SET lease_token = gen_random_uuid(), lease_owner = $4,
       lease_until = now() + $7::bigint * interval '1 ms',
       began_at = CASE WHEN one.due THEN coalesce(v.began_at, now()) ELSE v.began_at END
  FROM one
 WHERE v.group_name = one.group_name AND v.backfill = one.backfill
   AND v.projection = one.projection
RETURNING v.backfill, v.projection, v.lease_token::text AS token, v.cursor::text AS cursor,
          v.keyed_by, coalesce(v.began_at, now()) AS began_at, now() AS now, v.failures, one.due, one.listed)";

constexpr std::string_view kRenew = R"(
UPDATE {state}.verifications SET lease_until = now() + $5::bigint * interval '1 ms'
 WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid)";

constexpr std::string_view kRekey = R"(
WITH lease AS (
  UPDATE {state}.verifications
     SET keyed_by = $5, cursor = NULL, began_at = now(), due_at = now(), pass_rows = 0,
         pass_undecided = 0, pass_unlisted = 0, undecided = 0, unlisted = 0
   WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid
  RETURNING 1),
gone AS (
  DELETE FROM {state}.verify_differences
   WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND EXISTS (SELECT FROM lease))
SELECT count(*) FROM lease)";

constexpr std::string_view kAdvance = R"(
UPDATE {state}.verifications
   SET cursor = $5::jsonb, pass_rows = pass_rows + $6, pass_undecided = pass_undecided + $7,
       error = '', failures = 0, updated_at = now(), due_at = now() + $8::bigint * interval '1 ms',
       lease_token = NULL, lease_owner = NULL, lease_until = NULL
 WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid)";

constexpr std::string_view kKeep = R"(
WITH room AS (
  SELECT $6::bigint - count(*) AS left_over FROM {state}.verify_differences
   WHERE group_name = $1 AND backfill = $2 AND projection = $3),
found AS (
  SELECT u.key, u.class, f.key IS NOT NULL AS known,
         row_number() OVER (PARTITION BY f.key IS NULL) AS n
    FROM unnest($4::jsonb[], $5::text[]) AS u (key, class)
    LEFT JOIN {state}.verify_differences f
      ON f.group_name = $1 AND f.backfill = $2 AND f.projection = $3 AND f.key = u.key),
kept AS (
  INSERT INTO {state}.verify_differences AS f (group_name, backfill, projection, key, class)
  SELECT $1, $2, $3, found.key, found.class FROM found, room
   WHERE known OR n <= left_over
  ON CONFLICT (group_name, backfill, projection, key) DO UPDATE SET class = EXCLUDED.class
  RETURNING 1)
UPDATE {state}.verifications
   SET pass_unlisted = pass_unlisted + $7::bigint + cardinality($4::jsonb[])
                       - (SELECT count(*) FROM kept)
 WHERE group_name = $1 AND backfill = $2 AND projection = $3)";

constexpr std::string_view kPassed = R"(
UPDATE {state}.verifications
   SET passed_at = now(), rows = pass_rows, undecided = pass_undecided, unlisted = pass_unlisted,
       pass_rows = 0, pass_undecided = 0, pass_unlisted = 0, cursor = NULL, began_at = NULL,
       due_at = greatest(due_at, began_at + $4::bigint * interval '1 ms')
 WHERE group_name = $1 AND backfill = $2 AND projection = $3)";

constexpr std::string_view kListed = R"(
SELECT key::text AS key, class FROM {state}.verify_differences
 WHERE group_name = $1 AND backfill = $2 AND projection = $3
 ORDER BY found_at, key LIMIT $4)";

// What still differs goes to the end of the queue.
constexpr std::string_view kLooked = R"(
WITH lease AS (
  UPDATE {state}.verifications
     SET looked_at = now(), error = '', failures = 0
   WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid
  RETURNING 1),
gone AS (
  DELETE FROM {state}.verify_differences
   WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND key = ANY ($7::jsonb[])
     AND EXISTS (SELECT FROM lease)),
still AS (
  UPDATE {state}.verify_differences f SET found_at = now(), class = u.class
    FROM unnest($5::jsonb[], $6::text[]) AS u (key, class)
   WHERE f.group_name = $1 AND f.backfill = $2 AND f.projection = $3 AND f.key = u.key
     AND EXISTS (SELECT FROM lease))
SELECT count(*) FROM lease)";

constexpr std::string_view kFail = R"(
UPDATE {state}.verifications
   SET error = $5, failures = failures + 1, updated_at = now(), looked_at = now(),
       due_at = now() + $6::bigint * interval '1 ms',
       lease_token = NULL, lease_owner = NULL, lease_until = NULL
 WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid)";

constexpr std::string_view kRelease = R"(
UPDATE {state}.verifications
   SET lease_token = NULL, lease_owner = NULL, lease_until = NULL
 WHERE group_name = $1 AND backfill = $2 AND projection = $3 AND lease_token = $4::uuid)";

// Before the first pass has ended, what it has so far. Who is not wanted any more is not shown.
constexpr std::string_view kList = R"(
SELECT v.backfill, v.projection, v.began_at, v.pass_rows, v.passed_at, v.created_at, v.error AS last_error,
       v.failures, coalesce(v.lease_owner, '') AS owner,
       CASE WHEN v.passed_at IS NULL THEN v.pass_rows ELSE v.rows END AS rows,
       greatest(v.undecided, v.pass_undecided) AS undecided,
       greatest(v.unlisted, v.pass_unlisted) AS unlisted,
       coalesce(d.missing, 0) AS missing, coalesce(d.behind, 0) AS behind,
       coalesce(d.ghost, 0) AS ghost, coalesce(d.ahead, 0) AS ahead,
       coalesce(d.content, 0) AS content
  FROM {state}.verifications v
  LEFT JOIN (SELECT backfill, projection, count(*) FILTER (WHERE class = 'missing') AS missing,
                    count(*) FILTER (WHERE class = 'behind') AS behind,
                    count(*) FILTER (WHERE class = 'ghost') AS ghost,
                    count(*) FILTER (WHERE class = 'ahead') AS ahead,
                    count(*) FILTER (WHERE class = 'content') AS content
               FROM {state}.verify_differences WHERE group_name = $1
              GROUP BY backfill, projection) d
    ON d.backfill = v.backfill AND d.projection = v.projection
 WHERE v.group_name = $1 AND v.declared_at > now() - interval '5 minutes'
 ORDER BY v.backfill, v.projection)";

std::string KeyJson(const std::vector<std::string>& key) { return nlohmann::json(key).dump(); }

std::vector<std::string> KeyOf(std::string_view json) {
  return nlohmann::json::parse(json).get<std::vector<std::string>>();
}

struct Columns {
  explicit Columns(const std::vector<ListedDifference>& differences) {
    for (const ListedDifference& one : differences) {
      keys.Add(KeyJson(one.key));
      classes.Add(std::string_view(one.kind));
    }
  }
  postgres::Array keys, classes;
};

std::pair<postgres::Array, postgres::Array> Named(const Pairs& wanted) {
  postgres::Array backfills, projections;
  for (const auto& [backfill, projection] : wanted) {
    backfills.Add(std::string_view(backfill));
    projections.Add(std::string_view(projection));
  }
  return {backfills, projections};
}

}  // namespace

absl::Status Verifications::Declare(postgres::Connection& connection, const Pairs& wanted) const {
  const auto [backfills, projections] = Named(wanted);
  return connection.Run(schema_.Sql(kDeclare), group_, backfills, projections);
}

absl::StatusOr<std::optional<Verification>> Verifications::Claim(postgres::Connection& connection,
                                                                 const Pairs& wanted,
                                                                 const std::string& owner,
                                                                 const Pace& pace) const {
  const auto [backfills, projections] = Named(wanted);
  ASSIGN_OR_RETURN(const auto answer,
                   connection.Execute(schema_.Sql(kClaim), group_, backfills, projections, owner,
                                      pace.every, pace.again, pace.lease));
  if (answer.empty()) return std::nullopt;
  const postgres::Row row = answer[0];
  Verification lease{.backfill = row.String("backfill"),
                     .projection = row.String("projection"),
                     .token = row.String("token"),
                     .keyed_by = row.String("keyed_by"),
                     .began_at = row.Time("began_at"),
                     .now = row.Time("now"),
                     .failures = static_cast<int>(row.Int("failures")),
                     .due = row.Bool("due"),
                     .listed = row.Int("listed")};
  if (!row.IsNull("cursor")) lease.cursor = KeyOf(row.Text("cursor"));
  return lease;
}

absl::StatusOr<bool> Verifications::Renew(postgres::Connection& connection,
                                          const Verification& lease, Millis time) const {
  ASSIGN_OR_RETURN(const int64_t changed,
                   connection.Affected(schema_.Sql(kRenew), group_, lease.backfill,
                                       lease.projection, lease.token, time));
  return changed > 0;
}

absl::StatusOr<bool> Verifications::Rekey(postgres::Connection& connection, Verification& lease,
                                          const std::string& keyed_by) const {
  ASSIGN_OR_RETURN(const int64_t ours,
                   connection.Number(schema_.Sql(kRekey), group_, lease.backfill, lease.projection,
                                     lease.token, keyed_by));
  lease.keyed_by = keyed_by;
  lease.cursor.reset();
  lease.began_at = lease.now;
  lease.due = true;
  lease.listed = 0;
  return ours > 0;
}

absl::StatusOr<bool> Verifications::Advance(postgres::Connection& connection,
                                            const Verification& lease, const Range& range) const {
  const Columns found(range.differences);
  std::optional<std::string> cursor;
  if (range.next) cursor = KeyJson(*range.next);
  ASSIGN_OR_RETURN(auto transaction, connection.Begin());
  ASSIGN_OR_RETURN(
      const int64_t changed,
      transaction.Affected(schema_.Sql(kAdvance), group_, lease.backfill, lease.projection,
                           lease.token, cursor, range.rows, range.undecided, range.pause));
  if (changed == 0) return false;
  if (!range.differences.empty() || range.uncounted > 0) {
    RETURN_IF_ERROR(transaction.Run(schema_.Sql(kKeep), group_, lease.backfill, lease.projection,
                                    found.keys, found.classes, kMostListed, range.uncounted));
  }
  if (!range.next) {
    RETURN_IF_ERROR(transaction.Run(schema_.Sql(kPassed), group_, lease.backfill, lease.projection,
                                    range.every));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return true;
}

absl::StatusOr<std::vector<ListedDifference>> Verifications::Listed(
    postgres::Connection& connection, const Verification& lease, int at_most) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kListed), group_, lease.backfill,
                                                       lease.projection, at_most));
  std::vector<ListedDifference> listed;
  for (const postgres::Row row : rows) {
    listed.push_back({KeyOf(row.Text("key")), row.String("class")});
  }
  return listed;
}

absl::StatusOr<bool> Verifications::Looked(
    postgres::Connection& connection, const Verification& lease,
    const std::vector<ListedDifference>& still,
    const std::vector<std::vector<std::string>>& gone) const {
  const Columns differ(still);
  postgres::Array keys;
  for (const auto& key : gone) keys.Add(KeyJson(key));
  ASSIGN_OR_RETURN(const int64_t ours,
                   connection.Number(schema_.Sql(kLooked), group_, lease.backfill, lease.projection,
                                     lease.token, differ.keys, differ.classes, keys));
  return ours > 0;
}

absl::StatusOr<bool> Verifications::Fail(postgres::Connection& connection,
                                         const Verification& lease, const std::string& error,
                                         Millis delay) const {
  ASSIGN_OR_RETURN(const int64_t changed,
                   connection.Affected(schema_.Sql(kFail), group_, lease.backfill, lease.projection,
                                       lease.token, error, delay));
  return changed > 0;
}

absl::Status Verifications::Release(postgres::Connection& connection,
                                    const Verification& lease) const {
  return connection.Run(schema_.Sql(kRelease), group_, lease.backfill, lease.projection,
                        lease.token);
}

absl::StatusOr<postgres::Result> Verifications::List(postgres::Connection& connection) const {
  return connection.Execute(schema_.Sql(kList), group_);
}

}  // namespace lockstep::state
