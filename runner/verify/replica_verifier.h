#pragma once

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
#include "platform/retry_policy.h"
#include "projections/write/group_projector.h"
#include "runner/options/verify_schedule.h"
#include "runner/verify/verify_target.h"
#include "state/groups/verifications.h"
#include "verify/verify.h"

namespace lockstep::runner {

// A group whose tables are compared with their sources.
struct VerifiedGroup {
  std::string name;
  VerifySchedule schedule;
  std::vector<VerifyTarget> targets;
  const projections::GroupProjector* projector = nullptr;  // outlives the verifier
};

// Compares read models with their sources all the time, a range of keys at a time, spread over the
// time that a pass has. Of several runners the one that has the lease of a table does its next
// range, and a range that nobody finished is done again: the cursor stands in the state schema. A
// source that can't be reached is a warning, and tried again; groups know nothing of it. One thread
// for all groups, with sessions only while it works; Stop cancels a statement under way.
class ReplicaVerifier final : public Service {
 public:
  struct Options {
    std::string database;
    std::string state_schema;
    std::string instance;
    std::string ctl;  // how a log line calls lockstepctl
    Millis look{5'000};
    Millis statement_timeout{30'000};
    Millis passage_timeout{120'000};  // how long a second look waits for the group
    Millis lease{120'000};            // taken over so long after the last sign of life
    Millis again{600'000};            // how often rows that differ are looked at again
    Millis declare{60'000};           // how often it says that it is there
    RetryPolicy retry{.max_attempts = 0, .base = Millis(60'000), .cap = Millis(3'600'000)};
  };
  ReplicaVerifier(Options options, std::vector<VerifiedGroup> groups, MetricsRegistry& metrics);
  ~ReplicaVerifier() override { Stop(); }

  absl::Status Start() override;
  void Stop() override { thread_.Stop(); }

  // From any thread; as of the next range.
  void Follow(const std::string& group, Millis every);

  // One range, or one look at what was found, of one table that is due; false = nothing is. On the
  // caller's thread. An error is the state's database's. REQUIRES: not started.
  absl::StatusOr<bool> Turn(const std::string& group);

 private:
  struct Kept {
    VerifiedGroup group;
    state::Verifications store;
    std::vector<std::pair<std::string, std::string>> tables;  // backfill, projection
    prometheus::Counter& failures;
    SteadyTime declare_at{};
    std::map<std::pair<std::string, std::string>, int64_t>
        divided{};  // by so much are ranges smaller than they should be; after timeouts
  };

  void Work();
  absl::StatusOr<bool> Turn(Kept& kept);
  absl::Status Compare(Kept& kept, const VerifyTarget& target, const verify::VerifyTable& table,
                       state::Verification lease, Millis every);
  absl::Status Note(Kept& kept, const state::Verification& lease, const absl::Status& fault);
  void Tell(const Kept& kept, const VerifyTarget& target, const verify::VerifyTable& table,
            const std::vector<verify::Difference>& found) const;
  Millis EveryOf(const Kept& kept);

  const Options options_;
  const state::Schema schema_;
  std::unique_ptr<postgres::Connection> session_;  // of the state
  std::mutex mu_;
  std::map<std::string, Millis> every_;
  std::vector<Kept> groups_;
  ServiceThread thread_;  // last: it uses the rest
};

// `lockstepctl`'s arguments for that source, after the command's name: quoted for a shell, without
// a password.
std::string VerifyArguments(const VerifyTarget& target, const std::string& source);

}  // namespace lockstep::runner
