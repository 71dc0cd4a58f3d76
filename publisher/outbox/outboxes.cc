#include "publisher/outbox/outboxes.h"

#include "platform/status.h"
#include "postgres/migrator.h"
#include "postgres/sql_error.h"
#include "sql/migrations.h"

namespace lockstep::publisher {
namespace {

// Beside postgres::kPlannedOnce.
constexpr char kSettings[] =
    "SET synchronous_commit = off; SET enable_bitmapscan = off; SET enable_sort = off; ";

constexpr char kFind[] = R"sql(
SELECT o.outbox::oid::bigint AS oid, o.shards, lockstep.wake_channel(o.outbox) AS channel,
       o.hash_probe = lockstep.hash_probe() AS hashed_here, o.partition IS NOT NULL AS partitioned
FROM lockstep.outboxes o
WHERE o.outbox = to_regclass($1))sql";

constexpr char kCreate[] =
    "SELECT lockstep.create_outbox($1, $2, nullif($3::bigint, 0) * interval '1 ms', "
    "nullif($4, ''))::text AS name";
constexpr char kSetDedupWindow[] =
    "SELECT lockstep.set_dedup_window($1::regclass, nullif($2::bigint, 0) * interval '1 ms')";
constexpr char kDrop[] = "SELECT lockstep.drop_outbox($1::regclass, $2)";
constexpr char kList[] = R"sql(
SELECT o.outbox::text, o.shards, o.partition,
       (SELECT sum(greatest(c.reltuples, 0)) FROM pg_class c
        WHERE c.relkind = 'r' AND (c.oid = o.outbox OR c.oid IN (SELECT relid FROM pg_partition_tree(o.outbox))))::bigint AS rows,
       (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
        WHERE c.oid IN (SELECT coalesce(p.relid, t) FROM unnest(ARRAY[o.outbox, lockstep.part_oid(o.outbox, 'pending'),
          lockstep.part_oid(o.outbox, 'leases'), lockstep.part_oid(o.outbox, 'published')]) t
          LEFT JOIN LATERAL pg_partition_tree(t) p ON true))::bigint AS bytes,
       o.created_at::text,
       (extract(epoch FROM o.dedup_window) * 1000)::bigint AS dedup_window_ms
FROM lockstep.outboxes o JOIN pg_class t ON t.oid = o.outbox
ORDER BY 1)sql";
constexpr char kRights[] = "SELECT lockstep.{function}($1::regclass, $2::regrole)";

}  // namespace

std::string FillParts(std::string_view sql, const postgres::QualifiedName& table) {
  const auto part = [&](const char* suffix) {
    return postgres::QualifiedName{table.schema, table.name + suffix}.Quoted();
  };
  return postgres::FillNames(sql, {{"outbox", table.Quoted()},
                                   {"pending", part("_pending")},
                                   {"leases", part("_leases")},
                                   {"published", part("_published")},
                                   {"status", part("_status")},
                                   {"changed_leases", part("_changed_leases")},
                                   {"make_partitions", part("_make_partitions")},
                                   {"advance_partition", part("_advance_partition")},
                                   {"drop_partition", part("_drop_partition")}});
}

std::string OutboxSettings() { return std::string(postgres::kPlannedOnce) + kSettings; }

absl::StatusOr<Outbox> FindOutbox(postgres::Connection& connection,
                                  const postgres::QualifiedName& table) {
  const auto found = connection.Execute(kFind, table.Quoted());
  const std::string state = postgres::SqlState(found.status());
  if (state.starts_with("42") && state != "42501") {  // 42501: a missing right
    return FailedPrecondition(
        "database {} has no outboxes yet: run lockstepctl migrate up, then lockstepctl outbox "
        "create {}",
        connection.database(), table.ToString());
  }
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return FailedPrecondition(
        "{} is not an outbox in database {}: make it with lockstepctl outbox create {}",
        table.ToString(), connection.database(), table.ToString());
  }
  RETURN_IF_ERROR(postgres::CheckSchemaVersion(connection, "lockstep", sql::OutboxMigrations(),
                                               "lockstepctl migrate up --set outbox"));
  const postgres::Row row = (*found)[0];
  if (!row.Bool("hashed_here")) {
    return FailedPrecondition(
        "{} was made on a server that hashes otherwise, and the order of its aggregates is kept by "
        "hash: run SELECT lockstep.rehash('{}') in database {}",
        table.ToString(), table.Quoted(), connection.database());
  }
  return Outbox{row.Int("oid"), static_cast<int>(row.Int("shards")), row.String("channel"),
                row.Bool("partitioned")};
}

absl::StatusOr<std::string> CreateOutbox(postgres::Connection& connection,
                                         const postgres::QualifiedName& table, int shards,
                                         Millis dedup_window, const std::string& partition) {
  ASSIGN_OR_RETURN(const auto made, connection.Execute(kCreate, table.Quoted(), shards,
                                                       dedup_window.count(), partition));
  return made[0].String("name");
}

absl::Status SetDedupWindow(postgres::Connection& connection, const postgres::QualifiedName& table,
                            Millis window) {
  return connection.Run(kSetDedupWindow, table.Quoted(), window.count());
}

absl::Status DropOutbox(postgres::Connection& connection, const postgres::QualifiedName& table,
                        bool force) {
  return connection.Run(kDrop, table.Quoted(), force);
}

absl::StatusOr<nlohmann::ordered_json> ListOutboxes(postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(kList));
  auto list = nlohmann::ordered_json::array();
  for (const postgres::Row row : rows) {
    list.push_back({{"outbox", row.Text("outbox")},
                    {"shards", row.Int("shards")},
                    {"partition", row.OptionalText("partition").value_or("")},
                    {"rows", row.Int("rows")},
                    {"bytes", row.Int("bytes")},
                    {"dedup_window_ms", row.OptionalInt("dedup_window_ms").value_or(0)},
                    {"created_at", row.Text("created_at")}});
  }
  return list;
}

absl::Status ChangeRights(postgres::Connection& connection, const postgres::QualifiedName& table,
                          const std::string& function, const std::string& role) {
  return connection.Run(postgres::FillNames(kRights, {{"function", function}}), table.Quoted(),
                        postgres::QuoteIdentifier(role));
}

}  // namespace lockstep::publisher
