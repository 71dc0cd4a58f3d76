#include "publisher/upkeep/housekeeper.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {
namespace {

using postgres::Params;

// Counting further would cost more than it tells.
constexpr int64_t kCountAtMost = 1'000'000;
// A count that took t is not made again before 50 t have gone by.
constexpr int kCostLimit = 50;

constexpr char kNewestAudit[] = "SELECT coalesce(max(id), 0) FROM lockstep.outbox_audit";
// $1 the outbox, $2 the newest audit row that was seen.
constexpr char kReplays[] = R"sql(
SELECT coalesce(max(id), $2::bigint),
       count(*) FILTER (WHERE action = 'replay' AND outbox = lockstep.outbox_name($1::regclass))
FROM lockstep.outbox_audit WHERE id > $2::bigint)sql";

}  // namespace

Housekeeper::Housekeeper(CleanerOptions options, Millis count_every, std::string database,
                         std::vector<Task> tasks, OnCounts on_counts)
    : count_every_(count_every),
      database_(std::move(database)),
      tasks_(std::move(tasks)),
      on_counts_(std::move(on_counts)),
      options_(std::move(options)) {}

Housekeeper::~Housekeeper() { Stop(); }

absl::Status Housekeeper::Start() {
  return thread_.Start([this] {
    if (!tasks_.empty()) Run();
  });
}

void Housekeeper::Stop() {
  thread_.Stop([this] {
    std::scoped_lock lock(mu_);
    stop_ = true;
    changed_.notify_all();
  });
}

bool Housekeeper::Stopped() const {
  std::scoped_lock lock(mu_);
  return stop_;
}

void Housekeeper::Run() {
  const auto now = [] { return Clock::System().Steady(); };
  SteadyTime last_kept;
  SteadyTime next_count;
  bool at_once = true;
  while (!Stopped()) {
    const SteadyTime began = now();
    const bool keep = at_once || began - last_kept >= options().interval;
    const bool count = at_once || began >= next_count;
    if (keep) last_kept = began;
    if (keep || count) {
      if (const absl::Status done = Round(keep, count); !done.ok()) {
        log::Warning("housekeeping failed; it is tried again", {{"error", done}});
      }
    }
    if (count)
      next_count =
          began + std::max<SteadyTime::duration>(count_every_, kCostLimit * (now() - began));
    std::unique_lock lock(mu_);
    const SteadyTime next = std::min(next_count, last_kept + options_.interval);
    changed_.wait_until(lock, next, [this] { return stop_ || reconfigured_; });
    at_once = std::exchange(reconfigured_, false);
  }
}

absl::Status Housekeeper::Round(bool keep, bool count) {
  postgres::ConnectionOptions options;
  options.url = database_;
  options.application_name = "lockstep-publisher housekeeping";
  ASSIGN_OR_RETURN(const auto connection, postgres::Connection::Open(options));
  absl::Status first;
  for (const Task& task : tasks_) {
    if (Stopped()) break;
    // One bad table must not stop the others.
    if (keep) first.Update(Keep(*connection, task));
    if (count && task.relayed) first.Update(Count(*connection, task));
  }
  return first;
}

absl::Status Housekeeper::Keep(postgres::Connection& connection, const Task& task) {
  ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(task.table));
  ASSIGN_OR_RETURN(const auto store, OutboxStore::Open(connection, name));
  if (task.clean) RETURN_IF_ERROR(Clean(*store));
  if (!task.relayed) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t released, store->ReleaseHeld(task.dead_blocks));
  if (released > 0) {
    log::Info("rows behind a blocker that is gone were let go",
              {{"table", task.table}, {"rows", released}});
  }
  return absl::OkStatus();
}

absl::Status Housekeeper::Count(postgres::Connection& connection, const Task& task) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(task.table));
  Counts counts;
  ASSIGN_OR_RETURN(counts.backlog, OutboxStore::CountBacklog(connection, table, kCountAtMost));
  ASSIGN_OR_RETURN(counts.replays, NewReplays(connection, table));
  if (on_counts_) on_counts_(task.table, counts);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Housekeeper::NewReplays(postgres::Connection& connection,
                                                const postgres::QualifiedName& table) {
  const auto seen = audit_ids_.find(table.ToString());
  if (seen == audit_ids_.end()) {
    ASSIGN_OR_RETURN(const auto newest, connection.Execute(kNewestAudit));
    audit_ids_[table.ToString()] = newest.Int(0, 0);
    return 0;
  }
  ASSIGN_OR_RETURN(const auto replays, connection.Execute(kReplays, table.Quoted(), seen->second));
  seen->second = replays.Int(0, 0);
  return replays.Int(0, 1);
}

void Housekeeper::Reconfigure(const CleanerOptions& fresh) {
  {
    std::scoped_lock lock(mu_);
    options_.interval = fresh.interval;
    options_.retention = fresh.retention;
    options_.dead_retention = fresh.dead_retention;
    options_.batch_size = fresh.batch_size;
    reconfigured_ = true;
  }
  changed_.notify_all();
}

CleanerOptions Housekeeper::options() const {
  std::scoped_lock lock(mu_);
  return options_;
}

absl::Status Housekeeper::Clean(OutboxStore& store) {
  const CleanerOptions options = this->options();
  int64_t published = 0;
  int64_t dead = 0;
  for (int64_t rows = options.batch_size; rows == options.batch_size && !Stopped();) {
    ASSIGN_OR_RETURN(rows, store.CleanPublished(options.retention, options.batch_size));
    published += rows;
  }
  if (options.dead_retention > Millis(0)) {
    for (int64_t rows = options.batch_size; rows == options.batch_size && !Stopped();) {
      ASSIGN_OR_RETURN(rows, store.CleanDead(options.dead_retention, options.batch_size));
      dead += rows;
    }
  }
  if (published + dead > 0) {
    log::Info("old rows were deleted",
              {{"table", store.name()}, {"published", published}, {"dead", dead}});
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
