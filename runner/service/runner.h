#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/daemon/service.h"
#include "projections/model/projection.h"

namespace lockstep {
struct RunningConfig;
}
namespace lockstep::state {
class OffsetProvider;
}

// A runner in a process of one's own. Public: docs/embedding.md.
namespace lockstep::runner {

struct RunnerOptions;

// What a service adds to the configuration in C++.
struct Extensions {
  projections::CodeProjections projections;  // by the `group` of their file
  // Where the offsets of all groups are kept; outlives the runner. Null = in the state schema. With
  // another, a restored database is known by its checkpoints alone.
  state::OffsetProvider* offsets = nullptr;
};

// The groups of a configuration, the cleaner of their inbox and the HTTP endpoint, wired together.
// lockstep-runner is this plus signals; a C++ service may run it in its own process
// (examples/embedded_runner). Start returns at once: a group that can't run yet says so in NotReady
// and in the log, and goes on trying. Stop finishes what is in hand. Safe from any
// thread once Start has returned.
class Runner final : public Service {
 public:
  // Reads `file` as lockstep-runner --config does; `settings` stand over it, by the path of their
  // key: {{"database", url}}. The status lists every mistake. Of the section `log` the level alone
  // is followed.
  static absl::StatusOr<std::unique_ptr<Runner>> Open(
      const std::string& file, const std::map<std::string, std::string>& settings = {},
      Extensions extensions = {});

  // For lockstep-runner. Takes the declarations out of `options`; `config` and its file are shown
  // on the status page.
  Runner(RunnerOptions options, const RunningConfig& config, std::string config_file);
  ~Runner() override;

  absl::Status Start() override;
  void Stop() override;

  // One sentence per reason why a group does not get on; none = ready. REQUIRES: started.
  std::vector<std::string> NotReady() const;

  // Whether every group's loop makes its turns: false is Obstacle::kLoop. REQUIRES: started.
  bool Alive() const;

  // Waits until every group is drained or has halted, or `stop` is requested. The status names the
  // first halted group; DATA_LOSS = all is worked off, but some died. What became of the messages
  // is logged. REQUIRES: started.
  absl::Status RunOnce(const std::stop_token& stop);

  // The configuration was read again (SIGHUP): the groups follow what they can, the cleaner its
  // retention, the page shows `config`. REQUIRES: started.
  void Reload(const RunnerOptions& fresh, const RunningConfig& config);

 private:
  absl::Status Summarize() const;

  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::runner
