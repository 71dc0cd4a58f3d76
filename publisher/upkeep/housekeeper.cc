#include "publisher/upkeep/housekeeper.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "publisher/outbox/outbox_upkeep.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

using postgres::QualifiedName;

// A count that took t is not made again before 50 t have gone by.
constexpr int kCostLimit = 50;

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
  options.settings = OutboxSettings();
  ASSIGN_OR_RETURN(const auto connection, postgres::Connection::Open(options));
  absl::Status first;
  // One bad table must not stop the others.
  for (const Task& task : tasks_) {
    if (Stopped()) break;
    if (keep) first.Update(Keep(*connection, task));
    if (count && task.relayed) first.Update(Count(*connection, task));
  }
  return first;
}

absl::Status Housekeeper::Keep(postgres::Connection& connection, const Task& task) {
  ASSIGN_OR_RETURN(const QualifiedName table, QualifiedName::Parse(task.table));
  RETURN_IF_ERROR(FindOutbox(connection, table).status());
  if (task.clean) RETURN_IF_ERROR(Clean(connection, table));
  if (!task.relayed) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t released, ReleaseHeld(connection, table, task.dead_blocks));
  if (released > 0) {
    log::Info("rows behind a blocker that is gone were let go",
              {{"table", task.table}, {"rows", released}});
  }
  return absl::OkStatus();
}

absl::Status Housekeeper::Count(postgres::Connection& connection, const Task& task) {
  ASSIGN_OR_RETURN(const QualifiedName table, QualifiedName::Parse(task.table));
  Counts counts;
  ASSIGN_OR_RETURN(counts.backlog, CountBacklog(connection, table));
  ASSIGN_OR_RETURN(counts.replays, CountNewReplays(connection, table, audit_ids_[task.table]));
  if (on_counts_) on_counts_(task.table, counts);
  return absl::OkStatus();
}

void Housekeeper::Reconfigure(const CleanerOptions& fresh) {
  {
    std::scoped_lock lock(mu_);
    options_ = fresh;
    reconfigured_ = true;
  }
  changed_.notify_all();
}

CleanerOptions Housekeeper::options() const {
  std::scoped_lock lock(mu_);
  return options_;
}

absl::Status Housekeeper::Clean(postgres::Connection& connection, const QualifiedName& table) {
  const CleanerOptions options = this->options();
  int64_t published = 0;
  int64_t dead = 0;
  const auto all = [&](auto* delete_some, Millis age, int64_t& total) -> absl::Status {
    for (int64_t rows = options.batch_size; rows == options.batch_size && !Stopped();) {
      ASSIGN_OR_RETURN(rows, delete_some(connection, table, age, options.batch_size));
      total += rows;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(all(DeletePublished, options.retention, published));
  if (options.dead_retention > Millis(0)) {
    RETURN_IF_ERROR(all(DeleteDead, options.dead_retention, dead));
  }
  if (published + dead > 0) {
    log::Info("old rows were deleted",
              {{"table", table.ToString()}, {"published", published}, {"dead", dead}});
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
