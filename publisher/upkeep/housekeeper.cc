#include "publisher/upkeep/housekeeper.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/outboxes.h"
#include "publisher/outbox/partitions.h"

namespace lockstep::publisher {

using postgres::QualifiedName;

Housekeeper::Housekeeper(CleanerOptions options, std::string database, std::vector<Task> tasks,
                         Millis pull_back)
    : database_(std::move(database)),
      tasks_(std::move(tasks)),
      pull_back_(pull_back),
      options_(std::move(options)) {}

absl::Status Housekeeper::Start() {
  return thread_.Start([this] {
    if (!tasks_.empty()) Run();
  });
}

void Housekeeper::Run() {
  SteadyTime last;  // when everything was last done
  for (bool all = true; !thread_.stopping();) {
    const SteadyTime began = Clock::System().Steady();
    if (all) last = began;
    if (const absl::Status done = Round(all); !done.ok()) {
      log::Fault("housekeeping failed; it is tried again", {{"error", done}});
    }
    std::unique_lock lock(mu_);
    const SteadyTime due = last + options_.interval;
    all = changed_.wait_until(lock, thread_.stop_token(), std::min(due, began + pull_back_),
                              [this] { return reconfigured_; }) ||
          Clock::System().Steady() >= due;
    reconfigured_ = false;
  }
}

absl::Status Housekeeper::Round(bool all) {
  ASSIGN_OR_RETURN(
      const auto connection,
      postgres::Connection::Open({.url = database_,
                                  .application_name = "lockstep-publisher housekeeping",
                                  .settings = OutboxSettings()}));
  absl::Status first;
  // One bad table must not stop the others.
  for (const Task& task : tasks_) {
    if (thread_.stopping()) break;
    first.Update(Keep(*connection, task, all));
  }
  return first;
}

absl::Status Housekeeper::Keep(postgres::Connection& connection, const Task& task, bool all) {
  ASSIGN_OR_RETURN(const QualifiedName table, QualifiedName::Parse(task.table));
  ASSIGN_OR_RETURN(const Outbox outbox, FindOutbox(connection, table));
  if (task.relayed) RETURN_IF_ERROR(PullBack(connection, table, task.longest_wait).status());
  if (!all) return absl::OkStatus();
  // What keeps the cleaning from being done must not keep rows from being let go.
  absl::Status cleaned;
  if (outbox.partitioned) cleaned = KeepPartitions(connection, table);
  if (task.clean) cleaned.Update(Clean(connection, table, outbox.partitioned));
  if (!task.relayed) return cleaned;
  ASSIGN_OR_RETURN(const int64_t released, ReleaseHeld(connection, table, task.dead_blocks));
  if (released > 0) {
    log::Info("rows behind a blocker that is gone were let go",
              {{"table", task.table}, {"rows", released}});
  }
  return cleaned;
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

absl::Status Housekeeper::KeepPartitions(postgres::Connection& connection,
                                         const QualifiedName& table) {
  RETURN_IF_ERROR(MakePartitions(connection, table).status());
  const auto advanced = AdvancePartition(connection, table);
  if (!IsBusy(advanced.status())) return advanced.status();
  log::Info("rows still come into the partition before: a transaction has the outbox locked",
            {{"table", table.ToString()}});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Housekeeper::DropPartitions(postgres::Connection& connection,
                                                    const QualifiedName& table, Millis older_than) {
  int64_t dropped = 0;
  int64_t below = 0;
  while (!thread_.stopping()) {
    const auto next = DropPartition(connection, table, older_than);
    if (IsBusy(next.status())) {
      log::Info("an old partition stays for now: a transaction has the outbox locked",
                {{"table", table.ToString()}});
      break;
    }
    RETURN_IF_ERROR(next.status());
    below = next->stays_below;
    if (next->name.empty()) break;
    ++dropped;
  }
  if (dropped > 0) {
    log::Info("old partitions were dropped",
              {{"table", table.ToString()}, {"partitions", dropped}});
  }
  return below;
}

absl::Status Housekeeper::Clean(postgres::Connection& connection, const QualifiedName& table,
                                bool partitioned) {
  const CleanerOptions options = this->options();
  int64_t published = 0;
  int64_t dead = 0;
  int64_t audits = 0;
  const auto all = [&](const auto& delete_some, Millis age, int64_t& total) -> absl::Status {
    for (int64_t rows = options.batch_size; rows == options.batch_size && !thread_.stopping();) {
      ASSIGN_OR_RETURN(rows, delete_some(connection, table, age, options.batch_size));
      total += rows;
    }
    return absl::OkStatus();
  };
  int64_t below = std::numeric_limits<int64_t>::max();
  if (partitioned) {
    ASSIGN_OR_RETURN(below, DropPartitions(connection, table, options.retention));
  }
  const auto delete_published = [below](auto&... arguments) {
    return DeletePublished(arguments..., below);
  };
  if (below > 0) RETURN_IF_ERROR(all(delete_published, options.retention, published));
  // What content dedup remembers, for as long as its window.
  for (int64_t rows = options.batch_size; rows == options.batch_size && !thread_.stopping();) {
    ASSIGN_OR_RETURN(rows, DeleteContents(connection, table, options.batch_size));
  }
  if (options.dead_retention > Millis(0)) {
    RETURN_IF_ERROR(all(DeleteDead, options.dead_retention, dead));
  }
  if (options.audit_retention > Millis(0)) {
    RETURN_IF_ERROR(all(DeleteAudits, options.audit_retention, audits));
  }
  if (published + dead + audits > 0) {
    log::Info("old rows were deleted", {{"table", table.ToString()},
                                        {"published", published},
                                        {"dead", dead},
                                        {"audits", audits}});
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
