#include "runner/service/inbox_cleaner.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

constexpr Millis kLook{1'000};

// The BRIN index finds the pages; rows of another group on them are left alone.
constexpr std::string_view kInbox = R"(
DELETE FROM {state}.inbox
 WHERE ctid = ANY (ARRAY (
   SELECT ctid FROM {state}.inbox
    WHERE received_at < now() - make_interval(secs => $2 / 1000.0)
      AND generation IN (SELECT generation FROM {state}.slots WHERE group_name = $1)
    LIMIT $3)))";

constexpr std::string_view kTombstones = R"(
DELETE FROM {state}.row_versions
 WHERE ctid = ANY (ARRAY (
   SELECT ctid FROM {state}.row_versions
    WHERE deleted_at < now() - make_interval(secs => $2 / 1000.0)
      AND generation IN (SELECT generation FROM {state}.slots WHERE group_name = $1)
    LIMIT $3)))";

// Those that were killed; one that stops says so itself.
constexpr std::string_view kInstances = R"(
DELETE FROM {state}.instances
 WHERE group_name = $1 AND seen_at < now() - interval '1 day')";

// Of lanes that are gone; the one that came furthest tells where the group stands.
constexpr std::string_view kOffsets = R"(
DELETE FROM {state}.offsets o
 WHERE o.group_name = $1 AND o.updated_at < now() - interval '1 day'
   AND NOT EXISTS (SELECT 1 FROM {state}.instances i
                    WHERE i.group_name = o.group_name AND i.instance = o.instance
                      AND o.lane < i.lanes)
   AND EXISTS (SELECT 1 FROM {state}.offsets f
                WHERE f.group_name = o.group_name AND f.publish_time > o.publish_time))";

// Of a life of the read model that is over, whatever its age.
constexpr std::string_view kRetired = R"(
DELETE FROM {state}.%
 WHERE ctid = ANY (ARRAY (
   SELECT t.ctid FROM {state}.% t
    WHERE t.generation = ANY (ARRAY (SELECT generation FROM {state}.retired_generations
                                      WHERE group_name = $1))
    LIMIT $2)))";

constexpr std::string_view kForgetRetired = R"(
DELETE FROM {state}.retired_generations WHERE group_name = $1 AND generation <= $2)";
constexpr std::string_view kNewestRetired = R"(
SELECT max(generation) FROM {state}.retired_generations WHERE group_name = $1)";

std::string OfTable(const char* table) {
  std::string sql(kRetired);
  for (size_t at = sql.find('%'); at != std::string::npos; at = sql.find('%')) {
    sql.replace(at, 1, table);
  }
  return sql;
}

}  // namespace

InboxCleaner::InboxCleaner(Options options, Groups groups)
    : options_(std::move(options)),
      groups_(std::move(groups)),
      inbox_(offsets::StateSchema(options_.state_schema), "clean_inbox", kInbox),
      tombstones_(offsets::StateSchema(options_.state_schema), "clean_tombstones", kTombstones),
      ticker_(std::min(kLook, options_.interval), [this] { Round(); }) {}

InboxCleaner::~InboxCleaner() { Stop(); }

absl::Status InboxCleaner::Start() { return ticker_.Start(); }

void InboxCleaner::Stop() {
  stop_.request_stop();
  ticker_.Stop();
}

void InboxCleaner::Round() {
  const SteadyTime now = Clock::System().Steady();
  std::vector<InboxRetention> groups = groups_();
  if (groups == cleaned_ && now < next_round_) return;
  cleaned_ = std::move(groups);
  next_round_ = now + options_.interval;
  const auto cleaned = CleanOnce(cleaned_);
  if (!cleaned.ok()) Complain(cleaned.status());
  if (cleaned.ok() && *cleaned > 0) log::Info("inbox cleaned", {{"rows", *cleaned}});
}

// The groups say it loudly when the database is down, and this only comes again later. A right that
// is missing nobody else says, and the inbox would grow without a bound.
void InboxCleaner::Complain(const absl::Status& failed) {
  constexpr char kWhat[] = "the inbox was not cleaned";
  if (postgres::Classify(failed) == postgres::ErrorClass::kConfiguration) {
    log::Warning(kWhat, {{"schema", options_.state_schema}, {"error", failed}});
  } else {
    log::Debug(kWhat, {{"error", failed}});
  }
}

absl::StatusOr<int64_t> InboxCleaner::CleanOnce(const std::vector<InboxRetention>& groups) {
  ASSIGN_OR_RETURN(const auto connection,
                   postgres::Connection::Open(
                       {.url = options_.database, .application_name = "lockstep-runner cleaner"}));
  int64_t rows = 0;
  for (const InboxRetention& group : groups) {
    ASSIGN_OR_RETURN(const int64_t gone, Repeat(*connection, inbox_, group));
    rows += gone;
    RETURN_IF_ERROR(Repeat(*connection, tombstones_, group).status());
    for (const std::string_view sql : {kInstances, kOffsets}) {
      RETURN_IF_ERROR(
          connection
              ->Execute(offsets::StateSchema(options_.state_schema).Sql(sql), group.group.value())
              .status());
    }
    ASSIGN_OR_RETURN(const int64_t retired, CleanRetired(*connection, group.group.value()));
    rows += retired;
  }
  return rows;
}

absl::StatusOr<int64_t> InboxCleaner::CleanRetired(postgres::Connection& connection,
                                                   const std::string& group) {
  const offsets::StateSchema schema(options_.state_schema);
  using postgres::Params;
  ASSIGN_OR_RETURN(const auto newest, connection.Execute(schema.Sql(kNewestRetired), group));
  if (newest.IsNull(0, 0)) return 0;
  int64_t total = 0;
  for (const char* table : {"inbox", "parked", "key_state", "row_versions"}) {
    const std::string sql = schema.Sql(OfTable(table));
    for (int64_t gone = options_.batch; gone >= options_.batch;) {
      if (stop_.stop_requested()) return total;
      ASSIGN_OR_RETURN(const auto deleted, connection.Execute(sql, group, options_.batch));
      gone = deleted.affected_rows();
      total += gone;
    }
  }
  RETURN_IF_ERROR(connection.Execute(schema.Sql(kForgetRetired), group, newest.Int(0, 0)).status());
  return total;
}

absl::StatusOr<int64_t> InboxCleaner::Repeat(postgres::Connection& connection,
                                             const postgres::Statement& statement,
                                             const InboxRetention& group) {
  int64_t total = 0;
  while (!stop_.stop_requested()) {
    ASSIGN_OR_RETURN(
        const postgres::Result gone,
        connection.Execute(statement, group.group.value(),
                           static_cast<int64_t>(group.retention.count()), options_.batch));
    total += gone.affected_rows();
    if (gone.affected_rows() < options_.batch) break;
  }
  return total;
}

}  // namespace lockstep::runner
