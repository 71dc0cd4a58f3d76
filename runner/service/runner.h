#pragma once

#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "platform/daemon/http_server.h"
#include "platform/daemon/reload.h"
#include "platform/daemon/service.h"
#include "platform/metrics.h"
#include "pubsub/transport.h"
#include "runner/group/group.h"
#include "runner/service/runner_options.h"

namespace lockstep::runner {

class InboxCleaner;
struct InboxRetention;
class StatusReporter;

// The process: its groups, their cleaner and the HTTP endpoint, wired together. Start returns at
// once: a group that can't run yet says so in /readyz and in the log, and goes on trying.
class Runner : public Service {
 public:
  // Takes the declarations out of `options`. `config` and its file: for the status page.
  explicit Runner(RunnerOptions options, RunningConfig config = {}, std::string config_file = {});
  ~Runner() override;

  absl::Status Start() override;
  void Stop() override;

  // The configuration was read again (SIGHUP): the groups follow what they can, the cleaner its
  // retention, the page shows `config`. From any thread. REQUIRES: started.
  void Reload(const RunnerOptions& fresh, const RunningConfig& config);

  // Waits until every group is drained or has halted, or `stop` is requested. The status names the
  // first halted group.
  absl::Status RunOnce(const std::stop_token& stop);

  std::vector<GroupStatus> status() const;

 private:
  std::vector<InboxRetention> Retentions() const;
  HttpResponse Ready(const std::string& group) const;

  RunnerOptions options_;
  RunningConfig config_;
  std::string config_file_;
  MetricsRegistry metrics_;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<GroupEnvironment> environment_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<InboxCleaner> cleaner_;
  std::unique_ptr<StatusReporter> reporter_;
  HttpServer http_;

  std::mutex stop_mu_;
  bool stopped_ = false;
};

}  // namespace lockstep::runner
