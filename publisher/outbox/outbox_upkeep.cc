#include "publisher/outbox/outbox_upkeep.h"

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using postgres::FillNames;
using postgres::QualifiedName;
using postgres::Result;

// $1 age in ms, $2 rows. SKIP LOCKED: a reader of a row must not stop the cleaner.
constexpr char kDeletePublished[] = R"sql(
DELETE FROM {outbox} WHERE sequence IN (
  SELECT sequence FROM {outbox}
  WHERE published_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY published_at, sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";

constexpr char kDeleteDead[] = R"sql(
DELETE FROM {outbox} WHERE sequence IN (
  SELECT sequence FROM {outbox}
  WHERE published_at IS NULL AND available_at = 'infinity' AND quarantined_at IS NULL
    AND dead_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";

constexpr char kReleaseHeld[] = "SELECT lockstep.release_held($1::regclass, $2::boolean) AS rows";

// $1 the outbox, $2 the newest audit row that was seen; NULL = only see which it is.
constexpr char kNewReplays[] = R"sql(
WITH seen AS (SELECT coalesce($2::bigint, (SELECT max(id) FROM lockstep.outbox_audit), 0) AS id)
SELECT coalesce(max(a.id), (SELECT id FROM seen)) AS newest,
       count(*) FILTER (WHERE a.action = 'replay' AND a.outbox = lockstep.outbox_name($1::regclass)) AS replays
FROM lockstep.outbox_audit a
WHERE a.id > (SELECT id FROM seen))sql";

constexpr char kNewest[] = "SELECT coalesce(max(sequence), 0) AS sequence FROM {outbox}";

absl::StatusOr<int64_t> Delete(postgres::Connection& connection, const char* sql,
                               const QualifiedName& table, Millis older_than, int rows) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection.Execute(FillNames(sql, {{"outbox", table.Quoted()}}), older_than.count(), rows));
  return result.affected_rows();
}

}  // namespace

absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const QualifiedName& table, Millis older_than, int rows) {
  return Delete(connection, kDeletePublished, table, older_than, rows);
}

absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection, const QualifiedName& table,
                                   Millis older_than, int rows) {
  return Delete(connection, kDeleteDead, table, older_than, rows);
}

absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection, const QualifiedName& table,
                                    bool dead_blocks) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(kReleaseHeld, table.Quoted(), dead_blocks));
  return result[0].Int("rows");
}

absl::StatusOr<int64_t> CountNewReplays(postgres::Connection& connection,
                                        const QualifiedName& table, std::optional<int64_t>& seen) {
  ASSIGN_OR_RETURN(const Result result, connection.Execute(kNewReplays, table.Quoted(), seen));
  seen = result[0].Int("newest");
  return result[0].Int("replays");
}

absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
                                       const QualifiedName& table) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(FillNames(kNewest, {{"outbox", table.Quoted()}})));
  return result[0].Int("sequence");
}

}  // namespace lockstep::publisher
