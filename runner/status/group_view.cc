#include "runner/status/group_view.h"

#include <algorithm>
#include <chrono>

#include "web/document.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;
using web::AgeMs;
using web::TimeOrNull;

struct GroupGauge {
  const char* name;
  const char* help;
  double (*value)(const GroupView& view);
  const char* kind = nullptr;  // its label `class`
};

// One that is a number of the database's.
template <int64_t GroupRecord::*kNumber>
double Recorded(const GroupView& view) {
  return static_cast<double>(view.record.*kNumber);
}

constexpr char kDiffer[] =
    "Rows that differed from their source when they were last looked at, by class";

// The differences of one class; the template's argument is its place in kClasses.
constexpr const char* kClasses[] = {"missing", "behind", "ghost", "ahead", "content", "unlisted"};
template <int kClass>
double Differing(const GroupView& view) {
  const auto found = view.record.differences.find(kClasses[kClass]);
  return found == view.record.differences.end() ? 0 : static_cast<double>(found->second);
}

// In seconds; -1 = never.
double Age(WallTime at, WallTime now) {
  return at == WallTime() ? -1 : std::max(0.0, std::chrono::duration<double>(now - at).count());
}

constexpr GroupGauge kGauges[] = {
    {"runner_lag_seconds", "How old the read model is; idle is 0, stuck grows",
     [](const GroupView& view) { return static_cast<double>(view.lag.lag.count()) / 1000; }},
    {"offset_lag_ms", "From publish to commit, of the last offset saved",
     [](const GroupView& view) { return static_cast<double>(view.status.lag.count()); }},
    {"runner_catch_up_seconds", "Until the lag is gone at the present pace; -1 = not in sight",
     [](const GroupView& view) { return view.outlook.eta_seconds.value_or(-1); }},
    {"runner_halted", "1 while the group can't go on",
     [](const GroupView& view) { return view.status.state == GroupState::kHalted ? 1.0 : 0.0; }},
    {"runner_paused", "1 while an operator has paused the group",
     [](const GroupView& view) { return view.status.state == GroupState::kPaused ? 1.0 : 0.0; }},
    {"runner_heartbeat_age_seconds", "Since the newest heartbeat was published; -1 = none",
     [](const GroupView& view) { return Age(view.status.last_heartbeat, view.now); }},
    {"runner_commit_age_seconds", "Since the last commit; -1 = none",
     [](const GroupView& view) { return Age(view.status.last_commit, view.now); }},
    {"runner_checkpoint_age_seconds", "Since the newest checkpoint was taken; -1 = none",
     [](const GroupView& view) { return Age(view.record.checkpoint_at, view.now); }},
    {"runner_in_hand_events", "Messages received and not yet committed",
     [](const GroupView& view) { return static_cast<double>(view.status.in_hand()); }},
    {"runner_parked_keys", "Aggregates that wait for a dead letter or a missing version",
     Recorded<&GroupRecord::parked_keys>},
    {"runner_parked_events", "Events that wait in parking", Recorded<&GroupRecord::parked_events>},
    {"runner_version_lag",
     "Newest version received - version stored, of the aggregate furthest behind; 0 = nothing "
     "waits",
     Recorded<&GroupRecord::version_lag>},
    {"runner_dead_letters_open", "Dead letters that wait for a decision",
     Recorded<&GroupRecord::dead_letters>},
    {"replica_rows_verified",
     "Rows that the last full comparison with the source has read; of the one under way until one "
     "has ended",
     Recorded<&GroupRecord::rows_verified>},
    {"replica_verified_age_seconds",
     "Since all tables were last compared in full with their source, or are to be; -1 = not asked "
     "for",
     [](const GroupView& view) {
       return view.record.verified_tables == 0 ? -1 : Age(view.record.verified_at, view.now);
     }},
    {"replica_differences", kDiffer, Differing<0>, kClasses[0]},
    {"replica_differences", kDiffer, Differing<1>, kClasses[1]},
    {"replica_differences", kDiffer, Differing<2>, kClasses[2]},
    {"replica_differences", kDiffer, Differing<3>, kClasses[3]},
    {"replica_differences", kDiffer, Differing<4>, kClasses[4]},
    {"replica_differences", kDiffer, Differing<5>, kClasses[5]},
};

json LaneJson(const LaneStatus& lane, WallTime now, const HealthOptions& health) {
  const bool work = lane.in_hand() > 0;
  const char* state = !work                        ? "idle"
                      : IsStuck(lane, now, health) ? "stuck"
                      : !lane.last_error.empty()   ? "retrying"
                                                   : "working";
  return {{"lane", lane.lane},
          {"state", state},
          {"queued", lane.in_hand()},
          {"oldest_ms", work ? AgeMs(lane.oldest_received, now) : 0},
          {"last_commit_at", TimeOrNull(lane.last_commit)},
          {"last_message_id", lane.last_message_id},
          {"last_error", lane.last_error},
          {"waits_for", lane.waits_for},
          {"outage", lane.outage}};
}

json CountsJson(const GroupCounts& counts) {
  json fields = json::object();
  for (const GroupCounter& counter : kGroupCounters) {
    if (counter.field != nullptr) fields[counter.field] = counts.*counter.count;
  }
  return fields;
}

}  // namespace

json ToJson(const GroupView& view, const HealthOptions& health) {
  const GroupStatus& status = view.status;
  json part = view.record.part;
  part.update({{"name", status.name},
               {"subscription", status.subscription},
               {"topic", status.topic.empty() ? json(nullptr) : json(status.topic)},
               {"file", status.file},
               {"state", view.state},
               {"detail", status.reason.empty() ? status.stream : status.reason},
               {"epoch", status.epoch},
               {"generation", status.generation},
               {"slot", status.slot},
               {"lag_ms", view.lag.lag.count()},
               {"lag_basis", view.lag.basis},
               {"lag_alert_ms", health.lag_alert.count()},
               {"rate", web::Rounded(view.outlook.rate)},
               {"eta_seconds", web::Rounded(view.outlook.eta_seconds)},
               {"in_hand", status.in_hand()},
               {"last_commit_at", TimeOrNull(status.last_commit)},
               {"heartbeat_age_ms", status.last_heartbeat == WallTime()
                                        ? json(nullptr)
                                        : json(AgeMs(status.last_heartbeat, view.now))},
               {"heartbeat_limit_ms", health.heartbeat_timeout.count()},
               {"counters", CountsJson(status.counts)},
               {"not_ready", json::array()},
               {"lanes", json::array()}});
  for (const FoundObstacle& found : ObstaclesOf(status, view.now, health)) {
    part["not_ready"].push_back({{"what", Name(found.what)}, {"text", found.text}});
  }
  if (status.last_commit != WallTime()) {
    const auto ms = [](double seconds) { return static_cast<int64_t>(seconds * 1000); };
    part["stages"] = {{"occurred_published", ms(status.stages.occurred_to_published)},
                      {"published_received", ms(status.stages.published_to_received)},
                      {"received_committed", ms(status.stages.received_to_committed)}};
  }
  for (const LaneStatus& lane : status.lanes)
    part["lanes"].push_back(LaneJson(lane, view.now, health));
  return part;
}

GroupGauges::GroupGauges(MetricsRegistry& registry, const std::string& group)
    : replays_(CounterOf(registry, "tx_replay_total",
                         "Rows and messages that an operator sent again",
                         {{"kind", "dead_letter"}})) {
  for (const GroupGauge& gauge : kGauges) {
    Labels labels = {{"group", group}};
    if (gauge.kind != nullptr) labels["class"] = gauge.kind;
    gauges_.push_back(&GaugeOf(registry, gauge.name, gauge.help, labels));
  }
  Set(GroupView());
}

void GroupGauges::Set(const GroupView& view) {
  for (size_t i = 0; i < gauges_.size(); ++i) gauges_[i]->Set(kGauges[i].value(view));
  if (!view.record.replays) return;  // the database was not read yet
  if (replays_seen_ && *view.record.replays > *replays_seen_) {
    replays_.Increment(static_cast<double>(*view.record.replays - *replays_seen_));
  }
  replays_seen_ = view.record.replays;
}

}  // namespace lockstep::runner
