#include "runner/status/group_gauges.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <algorithm>
#include <chrono>

namespace lockstep::runner {
namespace {

prometheus::Gauge& Gauge(MetricsRegistry& registry, const std::string& group, const char* name,
                         const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({{"group", group}});
}

}  // namespace

GroupGauges::GroupGauges(MetricsRegistry& registry, const std::string& group)
    : lag_(Gauge(registry, group, "runner_lag_seconds",
                 "How old the read model is; idle is 0, stuck grows")),
      catch_up_(Gauge(registry, group, "runner_catch_up_seconds",
                      "Until the lag is gone at the present pace; -1 = not in sight")),
      in_hand_(Gauge(registry, group, "runner_in_hand_events",
                     "Messages received and not yet committed")),
      parked_keys_(Gauge(registry, group, "runner_parked_keys",
                         "Aggregates that wait for a dead letter or a missing version")),
      parked_events_(Gauge(registry, group, "runner_parked_events", "Events that wait in parking")),
      version_lag_(Gauge(registry, group, "runner_version_lag",
                         "Newest version received - version stored, of the aggregate furthest "
                         "behind; 0 = nothing waits")),
      dead_letters_(Gauge(registry, group, "runner_dead_letters_open",
                          "Dead letters that wait for a decision")),
      checkpoint_age_(Gauge(registry, group, "runner_checkpoint_age_seconds",
                            "Since the newest checkpoint was taken; -1 = none")),
      replays_(prometheus::BuildCounter()
                   .Name("replay_total")
                   .Help("Rows and messages that an operator sent again")
                   .Register(registry)
                   .Add({{"kind", "dead_letter"}})) {
  catch_up_.Set(-1);
  checkpoint_age_.Set(-1);
}

void GroupGauges::SetLag(Millis lag) { lag_.Set(static_cast<double>(lag.count()) / 1000); }
void GroupGauges::SetCatchUp(double seconds) { catch_up_.Set(seconds); }
void GroupGauges::SetInHand(int64_t events) { in_hand_.Set(static_cast<double>(events)); }

void GroupGauges::SetRecord(const GroupRecord& record, WallTime now) {
  parked_keys_.Set(static_cast<double>(record.parked_keys));
  parked_events_.Set(static_cast<double>(record.parked_events));
  version_lag_.Set(static_cast<double>(record.version_lag));
  dead_letters_.Set(static_cast<double>(record.dead_letters));
  const auto age = [&](WallTime at) {
    return std::max(0.0, std::chrono::duration<double>(now - at).count());
  };
  checkpoint_age_.Set(record.checkpoint_at ? age(*record.checkpoint_at) : -1);
  if (replays_seen_ >= 0 && record.replays > replays_seen_) {
    replays_.Increment(static_cast<double>(record.replays - replays_seen_));
  }
  replays_seen_ = record.replays;
}

}  // namespace lockstep::runner
