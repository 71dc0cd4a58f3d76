#include "runner/status/status_reporter.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "platform/status.h"
#include "runner/status/health.h"
#include "state/events/retention.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;

constexpr Millis kReadEvery{2'000};

}  // namespace

StatusReporter::StatusReporter(Parts parts, HttpServer& http)
    : parts_(std::move(parts)),
      daemon_("runner", parts_.instance, parts_.config, parts_.metrics),
      database_(parts_.database, Clock::System().Now()),
      schema_(parts_.state_schema),
      load_(parts_.metrics, "runner"),
      inbox_bytes_(GaugeOf(parts_.metrics, "runner_inbox_bytes",
                           "What the inbox of all groups takes on disk, indexes included", {})),
      reading_(kReadEvery,
               [this] {
                 const absl::Status read = ReadDatabase();
                 database_.Done(std::string(MessageOf(read)), Clock::System().Now());
               }),
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

absl::Status StatusReporter::ReadDatabase() {
  if (!session_ || session_->broken()) {
    session_.reset();
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open({.url = parts_.database,
                                                 .application_name = "lockstep-runner status",
                                                 .statement_timeout = Millis(5'000)}));
  }
  for (const auto& [name, unused] : gauges_) {
    ASSIGN_OR_RETURN(GroupRecord record, ReadRecord(*session_, schema_, ConsumerGroup(name)));
    const std::scoped_lock lock(mu_);
    records_[name] = std::move(record);
  }
  ASSIGN_OR_RETURN(const int64_t bytes, state::InboxBytes(*session_, schema_));
  inbox_bytes_.Set(static_cast<double>(bytes));
  return load_.Read(*session_);
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
    const HonestLag lag = LagOf(status, now, parts_.health);
    history.push_back({.name = status.name,
                       .done = static_cast<double>(status.counts.applied),
                       .left = static_cast<double>(lag.lag.count())});
    std::string state = StateWord(status, lag.lag, now, parts_.health);
    views.push_back({std::move(status), now, lag, std::move(state)});
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
    gauges_.at(view.status.name).Set(view);
    json part = ToJson(view, parts_.health);
    for (json& table : part["verify"]) {
      const auto of_group = parts_.comparing.find(view.status.name);
      if (of_group == parts_.comparing.end()) break;
      const auto found = of_group->second.find(table["backfill"].get<std::string>());
      table["arguments"] = found == of_group->second.end() ? "" : found->second;
    }
    document["groups"].push_back(std::move(part));
  }
  return document;
}

}  // namespace lockstep::runner
