#include "runner/status/status_reporter.h"

#include <prometheus/gauge.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "platform/config/database_address.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/version.h"
#include "runner/status/group_gauges.h"
#include "runner/status/health.h"
#include "web/document.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;

using web::AgeMs;
using web::TimeOrNull;

constexpr Millis kReadEvery{2'000};

json LaneJson(const LaneStatus& lane, WallTime now, const HealthOptions& health) {
  const bool work = HasWork(lane);
  const char* state = !work                        ? "idle"
                      : IsStuck(lane, now, health) ? "stuck"
                      : !lane.last_error.empty()   ? "retrying"
                                                   : "working";
  return {{"lane", lane.lane},
          {"state", state},
          {"queued", lane.queued + lane.in_batch},
          {"oldest_ms", work ? AgeMs(lane.oldest_received, now) : 0},
          {"last_commit_at", TimeOrNull(lane.last_commit)},
          {"last_message_id", lane.last_message_id},
          {"last_error", lane.last_error}};
}

json CountsJson(const GroupCounts& counts) {
  json fields = json::object();
  for (const GroupCounter& counter : kGroupCounters) {
    if (counter.field != nullptr) fields[counter.field] = counts.*counter.count;
  }
  return fields;
}

}  // namespace

// One group, between two rounds.
struct StatusReporter::Group {
  Group(MetricsRegistry& registry, const std::string& name) : gauges(registry, name) {}

  GroupGauges gauges;
  // Under StatusReporter::mu_: written by the thread that reads.
  json read = json::object();
  std::optional<GroupRecord> record;
};

StatusReporter::StatusReporter(Parts parts, HttpServer& http)
    : parts_(std::move(parts)),
      started_at_(Clock::System().Now()),
      address_(WithoutPassword(parts_.database)),
      reading_state_(address_, started_at_),
      reader_(parts_.database, state::Schema(parts_.state_schema)),
      ready_(prometheus::BuildGauge()
                 .Name("lockstep_ready")
                 .Help("1 while /readyz says yes")
                 .Register(parts_.metrics)
                 .Add({{"role", "runner"}})),
      config_(parts_.config),
      reading_(kReadEvery, [this] { ReadDatabase(); }),
      page_(
          http, [this] { return Compose(); }, [this](const json& document) { Observe(document); }) {
  for (const GroupStatus& group : parts_.groups()) {
    groups_[group.name] = std::make_unique<Group>(parts_.metrics, group.name);
  }
}

StatusReporter::~StatusReporter() { Stop(); }

absl::Status StatusReporter::Start() {
  RETURN_IF_ERROR(reading_.Start());
  return page_.Start();
}

void StatusReporter::Stop() {
  page_.Stop();
  reading_.Stop();
}

void StatusReporter::ReadDatabase() {
  std::string error;
  for (const auto& [name, group] : groups_) {
    GroupRecord record;
    auto part = reader_.Read(name, record);
    if (!part.ok()) {
      error = MessageOf(part.status());
      break;
    }
    const std::scoped_lock lock(mu_);
    group->read = *std::move(part);
    group->record = record;
  }
  reading_state_.Done(std::move(error), Clock::System().Now());
}

void StatusReporter::SetConfig(const RunningConfig& config) {
  const std::scoped_lock lock(mu_);
  config_ = config;
}

json StatusReporter::Compose() {
  const WallTime now = Clock::System().Now();
  json document = {
      {"role", "runner"},
      {"version", kVersion},
      {"instance", parts_.instance},
      {"started_at", FormatTimestamp(started_at_)},
      {"ctl", parts_.config_file.empty() ? "lockstepctl --database '" + address_ + "'"
                                         : "lockstepctl --config '" + parts_.config_file + "'"},
      {"ctl_schema", parts_.config_file.empty() ? parts_.state_schema : ""},
      {"groups", json::array()}};
  std::vector<std::string> reasons;
  for (const GroupStatus& status : parts_.groups()) {
    document["groups"].push_back(ComposeGroup(status, now));
    for (std::string& reason : NotReady(status, now, parts_.health)) {
      reasons.push_back(std::move(reason));
    }
  }
  document["ready"] = reasons.empty();
  ready_.Set(reasons.empty() ? 1 : 0);
  document["reasons"] = std::move(reasons);
  document["database"] = reading_state_.ToJson(now);
  document["database"]["schema"] = parts_.state_schema;
  const std::scoped_lock lock(mu_);
  document["config"] = web::ConfigJson(config_);
  return document;
}

void StatusReporter::Observe(const json& document) {
  for (const json& part : document["groups"]) {
    const json& eta = part["eta_seconds"];
    groups_.at(part["name"])->gauges.SetCatchUp(eta.is_number() ? eta.get<double>() : -1);
  }
}

json StatusReporter::ComposeGroup(const GroupStatus& status, WallTime now) {
  Group& group = *groups_.at(status.name);
  const int64_t in_hand = InHand(status);
  const HonestLag lag = LagOf(status, now, parts_.health);
  group.gauges.SetLag(lag.lag);
  group.gauges.SetInHand(in_hand);

  json part;
  {
    const std::scoped_lock lock(mu_);
    part = group.read;
    if (group.record) group.gauges.SetRecord(*group.record, now);
  }
  const auto ms = [](double seconds) { return static_cast<int64_t>(seconds * 1000); };
  part.update({{"name", status.name},
               {"subscription", status.subscription},
               {"file", status.file},
               {"detail", status.reason.empty() ? status.stream : status.reason},
               {"epoch", status.epoch},
               {"generation", status.generation},
               {"slot", status.slot},
               {"lag_ms", lag.lag.count()},
               {"lag_basis", lag.basis},
               {"lag_alert_ms", parts_.health.lag_alert.count()},
               {"in_hand", in_hand},
               {"last_commit_at", TimeOrNull(status.last_commit)},
               {"heartbeat_limit_ms", parts_.health.heartbeat_timeout.count()},
               {"counters", CountsJson(status.counts)},
               {"lanes", json::array()}});
  part["heartbeat_age_ms"] =
      status.last_heartbeat == WallTime() ? json(nullptr) : json(AgeMs(status.last_heartbeat, now));
  if (status.last_commit != WallTime()) {
    part["stages"] = {{"occurred_published", ms(status.stages.occurred_to_published)},
                      {"published_received", ms(status.stages.published_to_received)},
                      {"received_committed", ms(status.stages.received_to_committed)}};
  }
  for (const LaneStatus& lane : status.lanes) {
    part["lanes"].push_back(LaneJson(lane, now, parts_.health));
  }
  part["state"] = StateWord(status, lag.lag, now, parts_.health);
  return part;
}

}  // namespace lockstep::runner
