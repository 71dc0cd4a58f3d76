#include "runner/service/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <random>
#include <utility>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/host_name.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/metrics.h"
#include "platform/status.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"
#include "runner/group/group.h"
#include "runner/service/inbox_cleaner.h"
#include "runner/service/runner_options.h"
#include "runner/status/event_tracer.h"
#include "runner/status/health.h"
#include "runner/status/status_reporter.h"
#include "runner/status/version_waiters.h"
#include "runner/verify/replica_verifier.h"

namespace lockstep::runner {
namespace {

constexpr Millis kOnceLooks{50};

std::string DefaultInstance() {
  return fmt::format("{}-{}-{:06x}", HostName(), getpid(), std::random_device()() & 0xffffff);
}

// How an operator calls lockstepctl for this runner.
std::string CtlFor(const std::string& config_file, const std::string& database) {
  return config_file.empty() ? "lockstepctl --database '" + WithoutPassword(database) + "'"
                             : "lockstepctl --config '" + config_file + "'";
}

// What keeps a group from working off what is there; empty = nothing.
std::string InTheWay(const std::vector<GroupStatus>& groups) {
  for (const GroupStatus& group : groups) {
    if (group.state == GroupState::kHalted || group.state == GroupState::kPaused) {
      continue;  // that is an end, not a wait
    }
    if (group.state == GroupState::kStarting) {
      return fmt::format("group '{}' is starting: no answer yet about subscription {}", group.name,
                         group.subscription);
    }
    if (group.state != GroupState::kRunning) {
      return fmt::format("group '{}' is {}{}{}", group.name, Name(group.state),
                         group.reason.empty() ? "" : ": ", group.reason);
    }
    if (!group.database_error.empty()) {
      return fmt::format("group '{}': {}", group.name, group.database_error);
    }
    if (!group.stream.empty()) {
      return fmt::format("group '{}' has no stream from Pub/Sub: {}", group.name, group.stream);
    }
  }
  return "";
}

}  // namespace

struct Runner::Parts {
  Parts(RunnerOptions read, const RunningConfig& config, std::string file)
      : options(std::move(read)),
        running_config(config),
        config_file(std::move(file)),
        http(options.http) {
    if (options.instance.empty()) options.instance = DefaultInstance();
  }

  void MakeGroups();
  std::vector<GroupStatus> Statuses() const;
  std::vector<InboxRetention> Retentions() const;
  HttpResponse Ready(const std::string& group) const;

  RunnerOptions options;
  const RunningConfig running_config;  // as it was at the start
  const std::string config_file;
  MetricsRegistry metrics;
  std::unique_ptr<pubsub::Transport> transport;
  std::unique_ptr<GroupEnvironment> environment;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<VerifiedGroup> verified;
  std::unique_ptr<InboxCleaner> cleaner;
  std::unique_ptr<ReplicaVerifier> verifier;
  std::unique_ptr<StatusReporter> reporter;
  std::unique_ptr<VersionWaiters> waiters;
  std::unique_ptr<EventTracer> tracer;
  HttpServer http;

  std::mutex stop_mu;
  bool stopped = false;
};

absl::StatusOr<std::unique_ptr<Runner>> Runner::Open(
    const std::string& file, const std::map<std::string, std::string>& settings,
    Extensions extensions) {
  RunnerOptions options;
  options.extensions = std::move(extensions);
  RunningConfig config;
  RETURN_IF_ERROR(Config::Read(
      {.file = file, .flags = settings}, [&](ConfigSection& section) { Bind(section, options); },
      &config.keys));
  RETURN_IF_ERROR(options.Validate());
  log::SetLevel(options.log.level);
  return std::make_unique<Runner>(std::move(options), config,
                                  std::filesystem::absolute(file).string());
}

Runner::Runner(RunnerOptions options, const RunningConfig& config, std::string config_file)
    : parts_(std::make_unique<Parts>(std::move(options), config, std::move(config_file))) {}

Runner::~Runner() { Stop(); }

absl::Status Runner::Start() {
  Parts& parts = *parts_;
  const RunnerOptions& options = parts.options;
  MaskKeys(options.mask_keys);
  if (const std::string fault = UncheckedServer(options.database); !fault.empty()) {
    log::Warning(fault);
  }
  ASSIGN_OR_RETURN(parts.transport, pubsub::MakeTransport(options.pubsub.transport));
  parts.MakeGroups();
  parts.cleaner = std::make_unique<InboxCleaner>(
      InboxCleaner::Options{.database = options.database,
                            .state_schema = options.state_schema,
                            .dead_letters = options.dead_letter_retention,
                            .audit = options.audit_retention},
      [&parts] { return parts.Retentions(); });
  std::map<std::string, std::map<std::string, std::string>> comparing;
  for (const VerifiedGroup& group : parts.verified) {
    for (const VerifyTarget& target : group.targets) {
      comparing[group.name][target.declaration.name] =
          VerifyArguments(target, group.schedule.source);
    }
  }
  parts.verifier = std::make_unique<ReplicaVerifier>(
      ReplicaVerifier::Options{.database = options.database,
                               .state_schema = options.state_schema,
                               .instance = options.instance,
                               .ctl = CtlFor(parts.config_file, options.database)},
      std::move(parts.verified), parts.metrics);
  parts.reporter = std::make_unique<StatusReporter>(
      StatusReporter::Parts{.database = options.database,
                            .state_schema = options.state_schema,
                            .instance = options.instance,
                            .health = options.health,
                            .config = parts.running_config,
                            .config_file = parts.config_file,
                            .comparing = std::move(comparing),
                            .groups = [&parts] { return parts.Statuses(); },
                            .metrics = parts.metrics},
      parts.http);
  VersionWaiters::Options waiting{.database = options.database,
                                  .state_schema = options.state_schema};
  for (const auto& group : parts.groups) waiting.groups.push_back(group->name());
  parts.tracer = std::make_unique<EventTracer>(
      EventTracer::Options{waiting.database, waiting.state_schema, waiting.groups}, parts.http);
  parts.waiters = std::make_unique<VersionWaiters>(std::move(waiting), parts.http);
  RETURN_IF_ERROR(ServePages(
      parts.http,
      [&parts](const HttpRequest& request) {
        const auto group = request.query.find("group");
        return parts.Ready(group == request.query.end() ? "" : group->second);
      },
      parts.metrics, options.metrics_enabled ? options.metrics_path : ""));
  parts.environment->address = parts.http.advertised();
  if (options.http.enabled) {
    RETURN_IF_ERROR(parts.reporter->Start());
    RETURN_IF_ERROR(parts.waiters->Start());
    RETURN_IF_ERROR(parts.tracer->Start());
  }
  for (const auto& group : parts.groups) RETURN_IF_ERROR(group->Start());
  RETURN_IF_ERROR(parts.verifier->Start());
  return parts.cleaner->Start();
}

void Runner::Stop() {
  Parts& parts = *parts_;
  const std::scoped_lock lock(parts.stop_mu);
  if (std::exchange(parts.stopped, true)) return;
  std::vector<Service*> services;
  if (parts.cleaner) services.push_back(parts.cleaner.get());
  if (parts.verifier) services.push_back(parts.verifier.get());
  for (const auto& group : parts.groups) services.push_back(group.get());
  StopTogether(services);
  if (parts.waiters) parts.waiters->Stop();
  if (parts.tracer) parts.tracer->Stop();
  parts.http.Stop();
  if (parts.reporter) parts.reporter->Stop();
}

std::vector<std::string> Runner::NotReady() const {
  std::vector<std::string> reasons;
  for (const GroupStatus& group : parts_->Statuses()) {
    for (std::string& reason :
         runner::NotReady(group, Clock::System().Now(), parts_->options.health)) {
      reasons.push_back(std::move(reason));
    }
  }
  return reasons;
}

bool Runner::Alive() const {
  for (const GroupStatus& group : parts_->Statuses()) {
    for (const FoundObstacle& found :
         ObstaclesOf(group, Clock::System().Now(), parts_->options.health)) {
      if (found.what == Obstacle::kLoop) return false;
    }
  }
  return true;
}

absl::Status Runner::RunOnce(const std::stop_token& stop) {
  const RunnerOptions& options = parts_->options;
  const auto ended = [&](const auto& group) {
    const GroupState state = group->status().state;
    return state == GroupState::kHalted || state == GroupState::kPaused ||
           group->DrainedFor(options.once_quiet);
  };
  SteadyTime well = Clock::System().Steady();  // when nothing was in the way of any group
  while (!std::all_of(parts_->groups.begin(), parts_->groups.end(), ended)) {
    if (SleepUnlessStopped(stop, kOnceLooks)) break;
    const std::string obstacle = InTheWay(parts_->Statuses());
    if (obstacle.empty()) {
      well = Clock::System().Steady();
    } else if (Clock::System().Steady() - well > options.once_timeout) {
      return Unavailable("gave up after {}: {}", FormatDuration(options.once_timeout), obstacle);
    }
  }
  for (const GroupStatus& group : parts_->Statuses()) {
    if (group.state == GroupState::kPaused) {
      return FailedPrecondition("group '{}' is {}; lockstepctl group resume lets it go on",
                                group.name, group.reason);
    }
    if (group.state != GroupState::kHalted) continue;
    return FailedPrecondition("group '{}' has halted: {}", group.name, group.reason);
  }
  if (stop.stop_requested()) return absl::OkStatus();
  return Summarize();
}

absl::Status Runner::Summarize() const {
  std::vector<std::string> dead;
  for (const GroupStatus& group : parts_->Statuses()) {
    const GroupCounts& counts = group.counts;
    log::Info("worked off", {{"group", group.name},
                             {"applied", counts.applied},
                             {"superseded", counts.superseded},
                             {"ignored", counts.ignored},
                             {"duplicates", counts.duplicates},
                             {"parked", counts.parked},
                             {"dead_letters", counts.dead}});
    if (counts.dead > 0) dead.push_back(fmt::format("{} of group '{}'", counts.dead, group.name));
  }
  if (dead.empty()) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "all that was there is worked off, but events could not be applied: {}. "
                    "`{} dead-letters list` shows which, and why",
                    fmt::join(dead, ", "), CtlFor(parts_->config_file, parts_->options.database));
}

void Runner::Reload(const RunnerOptions& fresh, const RunningConfig& config) {
  parts_->reporter->SetConfig(config);
  for (const ConfiguredGroup& configured : fresh.groups) {
    for (const auto& group : parts_->groups) {
      if (group->name() == configured.options.name) group->Reconfigure(configured.options);
    }
    parts_->verifier->Follow(configured.options.name, configured.options.verify.every);
  }
}

void Runner::Parts::MakeGroups() {
  environment.reset(new GroupEnvironment{.database = options.database,
                                         .state_schema = options.state_schema,
                                         .instance = options.instance,
                                         .transport = *transport,
                                         .metrics = metrics,
                                         .health = options.health,
                                         .offsets = options.extensions.offsets});
  for (ConfiguredGroup& group : options.groups) {
    // As a command on the page can name it from anywhere.
    if (const std::string& file = group.declaration->file; !file.empty()) {
      group.options.file = std::filesystem::absolute(file).string();
    }
    group.options.subscription =
        pubsub::SubscriptionName(options.pubsub.project, group.options.subscription);
    if (!group.options.snapshots.empty()) {
      group.options.snapshots =
          pubsub::SubscriptionName(options.pubsub.project, group.options.snapshots);
    }
    verified.push_back({.name = group.options.name,
                        .schedule = group.options.verify,
                        .targets = std::move(group.verified),
                        .projector = group.declaration->projector.get()});
    groups.push_back(std::make_unique<Group>(group.options, std::move(group.declaration->projector),
                                             *environment));
  }
}

std::vector<GroupStatus> Runner::Parts::Statuses() const {
  std::vector<GroupStatus> statuses;
  for (const auto& group : groups) statuses.push_back(group->status());
  return statuses;
}

std::vector<InboxRetention> Runner::Parts::Retentions() const {
  std::vector<InboxRetention> retentions;
  for (const auto& group : groups) {
    const Millis retention = group->inbox_retention();
    if (retention > Millis(0)) retentions.push_back({ConsumerGroup(group->name()), retention});
  }
  return retentions;
}

HttpResponse Runner::Parts::Ready(const std::string& group) const {
  HttpResponse response;
  bool found = group.empty();
  for (const GroupStatus& status : Statuses()) {
    if (!group.empty() && status.name != group) continue;
    found = true;
    const auto reasons = runner::NotReady(status, Clock::System().Now(), options.health);
    if (!reasons.empty()) response.status = 503;
    for (const std::string& reason : reasons) response.body += reason + "\n";
    if (reasons.empty()) response.body += fmt::format("group {}: ready\n", status.name);
  }
  if (!found) return {.status = 404, .body = fmt::format("there is no group '{}'\n", group)};
  return response;
}

}  // namespace lockstep::runner
