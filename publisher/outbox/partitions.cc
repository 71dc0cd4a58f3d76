#include "publisher/outbox/partitions.h"

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

constexpr char kMakePartitions[] = "SELECT {make_partitions}()";
constexpr char kAdvancePartition[] = "SELECT {advance_partition}() AS advanced";
constexpr char kDropPartition[] = R"sql(
SELECT coalesce(dropped, '') AS dropped, coalesce(stays_below, 0) AS stays_below
FROM {drop_partition}($1::bigint * interval '1 ms'))sql";

}  // namespace

absl::StatusOr<int64_t> MakePartitions(postgres::Connection& connection,
                                       const postgres::QualifiedName& table) {
  return connection.Number(FillParts(kMakePartitions, table));
}

absl::StatusOr<bool> AdvancePartition(postgres::Connection& connection,
                                      const postgres::QualifiedName& table) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(FillParts(kAdvancePartition, table)));
  return rows[0].Bool("advanced");
}

absl::StatusOr<DroppedPartition> DropPartition(postgres::Connection& connection,
                                               const postgres::QualifiedName& table,
                                               Millis older_than) {
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(FillParts(kDropPartition, table), older_than.count()));
  return DroppedPartition{rows[0].String("dropped"), rows[0].Int("stays_below")};
}

bool IsBusy(const absl::Status& status) {
  const std::string state = postgres::SqlState(status);
  return state == "55P03" || state == "40P01";
}

}  // namespace lockstep::publisher
