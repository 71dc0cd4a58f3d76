#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/metrics.h"
#include "postgres/connection.h"
#include "postgres/server_load.h"
#include "sagas/orchestrator/options.h"
#include "sagas/store/desk.h"

namespace lockstep::sagas {

// What is done beside the running of sagas, on one session: counts them for gauges and the status
// page, deletes what has ended long ago, reads for people who ask. A thread of its own, which may
// hang with the database.
class SagaWatch final : public Service {
 public:
  SagaWatch(const OrchestratorOptions& options, MetricsRegistry& metrics);
  ~SagaWatch() override { Stop(); }

  absl::Status Start() override;
  void Stop() override { thread_.Stop(); }

  void Reconfigure(const RetentionOptions& retention);  // any thread

  // As they were last counted. Any thread.
  std::vector<SagaCounts> counts() const;
  std::vector<StoredSaga> waiting() const;  // dead and paused ones, the youngest of each
  std::string error() const;                // of the last count; empty = none
  WallTime read_at() const;
  // Somebody looks, and will for this long: they are counted every few seconds, less often where
  // that takes long. Any thread.
  void Watched(Millis time);

  // Runs it on this object's thread, with its session (null: it could not be opened, for that
  // reason). Any thread; false = too many wait.
  using Question = std::function<void(const absl::StatusOr<postgres::Connection*>&)>;
  bool Ask(Question question);

 private:
  void Work();
  absl::StatusOr<postgres::Connection*> Session();
  absl::Status Count();
  SteadyTime NextCount() const;  // under mu_
  absl::Status Clean();
  RetentionOptions retention() const;

  const std::string database_;
  const Millis every_;
  MetricsRegistry& metrics_;
  postgres::ServerLoad load_;
  std::unique_ptr<postgres::Connection> session_;  // of its thread
  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  RetentionOptions retention_;
  std::deque<Question> questions_;
  std::vector<SagaCounts> counts_;
  std::vector<StoredSaga> waiting_;
  SteadyTime counted_{};  // when the last count ended; the epoch = none was made
  Millis count_took_{};
  SteadyTime watched_until_{};
  std::string error_;
  WallTime read_at_{};
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::sagas
