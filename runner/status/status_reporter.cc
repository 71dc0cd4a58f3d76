#include "runner/status/status_reporter.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "platform/status.h"
#include "runner/status/health.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;

constexpr Millis kReadEvery{2'000};

}  // namespace

StatusReporter::StatusReporter(Parts parts, HttpServer& http)
    : parts_(std::move(parts)),
      daemon_("runner", parts_.instance, parts_.config, parts_.metrics),
      database_(parts_.database, Clock::System().Now()),
      reader_(parts_.database, state::Schema(parts_.state_schema)),
      reading_(kReadEvery, [this] { ReadDatabase(); }),
      page_(http, [this] { return Compose(); }) {
  for (const GroupStatus& group : parts_.groups()) {
    gauges_.try_emplace(group.name, parts_.metrics, group.name);
  }
}

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
  for (const auto& [name, unused] : gauges_) {
    auto record = reader_.Read(name);
    if (!record.ok()) {
      error = MessageOf(record.status());
      break;
    }
    const std::scoped_lock lock(mu_);
    records_[name] = *std::move(record);
  }
  database_.Done(std::move(error), Clock::System().Now());
}

json StatusReporter::Compose() {
  const WallTime now = Clock::System().Now();
  std::vector<GroupView> views;
  std::vector<web::History::Part> history;
  std::vector<std::string> reasons;
  for (GroupStatus& status : parts_.groups()) {
    for (std::string& reason : NotReady(status, now, parts_.health)) {
      reasons.push_back(std::move(reason));
    }
    const GroupView& view = views.emplace_back(std::move(status), now, parts_.health);
    history.push_back({.name = view.status.name,
                       .done = static_cast<double>(view.status.counts.applied),
                       .left = static_cast<double>(view.lag.lag.count())});
  }
  history_.Add(now, history);

  json document = daemon_.Head(reasons, database_, now);
  document["database"]["schema"] = parts_.state_schema;
  const bool file = !parts_.config_file.empty();
  document["ctl"] = file ? "lockstepctl --config '" + parts_.config_file + "'"
                         : "lockstepctl --database '" + database_.address() + "'";
  document["ctl_schema"] = file ? "" : parts_.state_schema;
  document["history"] = history_.ToJson("groups", "lag_ms");
  document["groups"] = json::array();
  for (GroupView& view : views) {
    view.outlook = history_.Of(view.status.name);
    {
      const std::scoped_lock lock(mu_);
      view.record = records_[view.status.name];
    }
    gauges_.at(view.status.name).Set(view, now);
    document["groups"].push_back(ToJson(view, now, parts_.health));
  }
  return document;
}

}  // namespace lockstep::runner
