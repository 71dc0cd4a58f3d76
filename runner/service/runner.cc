#include "runner/service/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>
#include <utility>

#include "platform/daemon/pages.h"
#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/names.h"
#include "runner/service/inbox_cleaner.h"
#include "runner/status/health.h"
#include "runner/status/status_reporter.h"

namespace lockstep::runner {
namespace {

constexpr Millis kOnceLooks{50};

std::string DefaultInstance() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}-{}-{:06x}", host.data(), getpid(), std::random_device()() & 0xffffff);
}

// What keeps a group from working off what is there; empty = nothing.
std::string InTheWay(const std::vector<GroupStatus>& groups) {
  for (const GroupStatus& group : groups) {
    if (group.state == GroupState::kHalted) continue;  // that is an end, not a wait
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

Runner::Runner(RunnerOptions options, RunningConfig config, std::string config_file)
    : options_(std::move(options)),
      config_(std::move(config)),
      config_file_(std::move(config_file)),
      http_(options_.http) {
  if (options_.instance.empty()) options_.instance = DefaultInstance();
}

Runner::~Runner() { Stop(); }

absl::Status Runner::Start() {
  ASSIGN_OR_RETURN(transport_, pubsub::MakeTransport(options_.pubsub.transport));
  environment_.reset(new GroupEnvironment{.database = options_.database,
                                          .state_schema = options_.state_schema,
                                          .instance = options_.instance,
                                          .transport = *transport_,
                                          .metrics = metrics_,
                                          .health = options_.health,
                                          .offsets = options_.offsets});
  for (ConfiguredGroup& group : options_.groups) {
    // As a command on the page can name it from anywhere.
    if (const std::string& file = group.declaration->file; !file.empty()) {
      group.options.file = std::filesystem::absolute(file).string();
    }
    group.options.subscription =
        pubsub::SubscriptionName(options_.pubsub.project, group.options.subscription);
    groups_.push_back(std::make_unique<Group>(
        group.options, std::move(group.declaration->projector), *environment_));
  }
  cleaner_ = std::make_unique<InboxCleaner>(
      InboxCleaner::Options{.database = options_.database, .state_schema = options_.state_schema},
      [this] { return Retentions(); });
  reporter_ =
      std::make_unique<StatusReporter>(StatusReporter::Parts{.database = options_.database,
                                                             .state_schema = options_.state_schema,
                                                             .instance = options_.instance,
                                                             .health = options_.health,
                                                             .config = config_,
                                                             .config_file = config_file_,
                                                             .groups = [this] { return status(); },
                                                             .metrics = metrics_},
                                       http_);
  RETURN_IF_ERROR(ServePages(
      http_,
      [this](const HttpRequest& request) {
        const auto group = request.query.find("group");
        return Ready(group == request.query.end() ? "" : group->second);
      },
      metrics_, options_.metrics_enabled ? options_.metrics_path : ""));
  if (options_.http.enabled) RETURN_IF_ERROR(reporter_->Start());
  for (const auto& group : groups_) RETURN_IF_ERROR(group->Start());
  return cleaner_->Start();
}

void Runner::Stop() {
  const std::scoped_lock lock(stop_mu_);
  if (std::exchange(stopped_, true)) return;
  std::vector<Service*> services;
  if (cleaner_) services.push_back(cleaner_.get());
  for (const auto& group : groups_) services.push_back(group.get());
  StopTogether(services);
  http_.Stop();
  if (reporter_) reporter_->Stop();
}

void Runner::Reload(const RunnerOptions& fresh, const RunningConfig& config) {
  reporter_->SetConfig(config);
  for (const ConfiguredGroup& configured : fresh.groups) {
    for (const auto& group : groups_) {
      if (group->name() == configured.options.name) group->Reconfigure(configured.options);
    }
  }
}

std::vector<InboxRetention> Runner::Retentions() const {
  std::vector<InboxRetention> retentions;
  for (const auto& group : groups_) {
    const Millis retention = group->inbox_retention();
    if (retention > Millis(0)) retentions.push_back({ConsumerGroup(group->name()), retention});
  }
  return retentions;
}

absl::Status Runner::RunOnce(const std::stop_token& stop) {
  const auto ended = [&](const auto& group) {
    return group->status().state == GroupState::kHalted || group->DrainedFor(options_.once_quiet);
  };
  SteadyTime well = Clock::System().Steady();  // when nothing was in the way of any group
  while (!std::all_of(groups_.begin(), groups_.end(), ended)) {
    if (SleepUnlessStopped(stop, kOnceLooks)) break;
    const std::string obstacle = InTheWay(status());
    if (obstacle.empty()) {
      well = Clock::System().Steady();
    } else if (Clock::System().Steady() - well > options_.once_timeout) {
      return Unavailable("gave up after {}: {}", FormatDuration(options_.once_timeout), obstacle);
    }
  }
  for (const GroupStatus& group : status()) {
    if (group.state != GroupState::kHalted) continue;
    return FailedPrecondition("group '{}' has halted: {}", group.name, group.reason);
  }
  return absl::OkStatus();
}

std::vector<GroupStatus> Runner::status() const {
  std::vector<GroupStatus> statuses;
  for (const auto& group : groups_) statuses.push_back(group->status());
  return statuses;
}

HttpResponse Runner::Ready(const std::string& group) const {
  HttpResponse response;
  bool found = group.empty();
  for (const GroupStatus& status : this->status()) {
    if (!group.empty() && status.name != group) continue;
    found = true;
    const auto reasons = NotReady(status, Clock::System().Now(), options_.health);
    if (!reasons.empty()) response.status = 503;
    for (const std::string& reason : reasons) response.body += reason + "\n";
    if (reasons.empty()) response.body += fmt::format("group {}: ready\n", status.name);
  }
  if (!found) return {.status = 404, .body = fmt::format("there is no group '{}'\n", group)};
  return response;
}

}  // namespace lockstep::runner
