#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "publisher/options/options.h"

namespace lockstep::publisher {

// What an outbox needs besides being relayed, on one connection of its own that is open only while
// there is something to do: old rows are deleted in bounded batches, partitions are made ahead and
// dropped, rows held behind a blocker that vanished are let go, and those that a clock has left in
// the future are due. Any number of publishers may do it at once. A thread of its own; Stop ends it
// between two statements.
class Housekeeper : public Service {
 public:
  struct Task {
    std::string table;
    bool clean = false;
    bool relayed = false;          // held rows are a relay's business
    bool dead_blocks = true;       // on_dead: hold_key
    Millis longest_wait{120'000};  // of a retry, or for a lease
  };
  // `pull_back`: how often at least rows are looked for that a clock has left in the future,
  // however seldom the rest is asked for.
  Housekeeper(CleanerOptions options, std::string database, std::vector<Task> tasks,
              Millis pull_back = Millis(60'000));

  absl::Status Start() override;
  void Stop() override { thread_.Stop(); }

  // Takes interval, retentions and batch size from `fresh`; the next round is at once. Any thread.
  void Reconfigure(const CleanerOptions& fresh);

  // Over all tables, now, on the caller's thread; or only the rows of the future. REQUIRES: not
  // started.
  absl::Status Round(bool all = true);

 private:
  void Run();
  absl::Status Keep(postgres::Connection& connection, const Task& task, bool all);
  absl::Status KeepPartitions(postgres::Connection& connection,
                              const postgres::QualifiedName& table);
  absl::Status Clean(postgres::Connection& connection, const postgres::QualifiedName& table,
                     bool partitioned);
  // Answers below which sequence old rows are left, for the cleaning by rows.
  absl::StatusOr<int64_t> DropPartitions(postgres::Connection& connection,
                                         const postgres::QualifiedName& table, Millis older_than);
  CleanerOptions options() const;

  const std::string database_;
  const std::vector<Task> tasks_;
  const Millis pull_back_;
  mutable std::mutex mu_;
  CleanerOptions options_;
  std::condition_variable_any changed_;
  bool reconfigured_ = false;
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::publisher
