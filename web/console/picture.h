#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "platform/clock.h"
#include "web/console/instance.h"

namespace lockstep::web {

// The whole as one picture, put together from what each instance told: outboxes, where their topics
// go, and the groups that read there. What several instances say of the same outbox or group is one
// part: rates are added, of lags the greatest counts, of what one database knows the newest. Pure.
//
//   instances: address, role, instance, version, ready, started_at, answers, fault, since,
//              answered_at, found_in, seen_at
//   sources:   key, table, database, state, pending, oldest_ms, rate, dead, publishers, to
//   topics:    key, name, kind (pubsub, http), published, outage
//   groups:    key, name, database, topic (a topic's key, null = not known), state, lag_ms, rate,
//              eta_seconds, parked, dead, runners, late
//   sagas:     definition, running, compensating, paused, dead, rate
//   attention: severity, title, detail, address
nlohmann::json Picture(const std::vector<Asked>& asked, WallTime now);

}  // namespace lockstep::web
