#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "postgres/connection.h"
#include "publisher/options/options.h"
#include "publisher/outbox/outbox_rows.h"

namespace lockstep::publisher {

// What an outbox needs besides being relayed, on one connection of its own that is open only while
// there is something to do. On the cleaner's schedule, old rows are deleted in bounded batches and
// rows held behind a blocker that vanished are let go; on another, rows are counted for the
// metrics. Any number of publishers may do it at once. A thread of its own; Stop ends it between
// two statements.
class Housekeeper : public Service {
 public:
  struct Task {
    std::string table;
    bool clean = false;
    bool relayed = false;     // held rows and counts are a relay's business
    bool dead_blocks = true;  // on_dead: hold_key
  };
  struct Counts {
    Backlog backlog;
    int64_t replays = 0;  // by hand, since the count before
  };
  using OnCounts = std::function<void(const std::string& table, const Counts&)>;

  // `count_every`: a count that takes long is made less often.
  Housekeeper(CleanerOptions options, Millis count_every, std::string database,
              std::vector<Task> tasks, OnCounts on_counts);
  ~Housekeeper() override;

  absl::Status Start() override;
  void Stop() override;

  // Takes interval, retentions and batch size from `fresh`; the next round is at once. Any thread.
  void Reconfigure(const CleanerOptions& fresh);

  // Both over all tables, now, on the caller's thread. REQUIRES: not started.
  absl::Status Round() { return Round(/*keep=*/true, /*count=*/true); }

 private:
  void Run();
  absl::Status Round(bool keep, bool count);
  absl::Status Keep(postgres::Connection& connection, const Task& task);
  absl::Status Clean(postgres::Connection& connection, const postgres::QualifiedName& table);
  absl::Status Count(postgres::Connection& connection, const Task& task);
  bool Stopped() const;
  CleanerOptions options() const;

  const Millis count_every_;
  const std::string database_;
  const std::vector<Task> tasks_;
  const OnCounts on_counts_;
  std::map<std::string, std::optional<int64_t>> audit_ids_;  // by table: the newest one seen
  ServiceThread thread_;
  mutable std::mutex mu_;
  CleanerOptions options_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool reconfigured_ = false;
};

}  // namespace lockstep::publisher
