#include "publisher/service/status_reporter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "publisher/observe/relay_status.h"
#include "publisher/service/outbox_watch.h"
#include "publisher/service/publisher.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using web::AgeMs;
using web::TimeOrNull;

constexpr Millis kWatched{30'000};  // so long after a request a reader counts as watching
constexpr Millis kQuietAfter{60'000};

std::string StateOf(const TableStatus& status, WallTime now) {
  if (!status.relayed) return "off";
  if (!status.fault.empty()) return "waiting";
  const RelayRecord& relay = status.relay;
  const auto out = [](const auto& topic) { return !topic.second.outage.empty(); };
  if (std::any_of(relay.topics.begin(), relay.topics.end(), out)) return "out of reach";
  if (relay.shards_held == 0) return "standby";
  const bool silent = AgeMs(relay.last_publish, now) > kQuietAfter.count();
  if (status.record.pending == 0) return silent ? "quiet" : "relaying";
  return silent && status.record.oldest > kQuietAfter ? "stuck" : "relaying";
}

json ToJson(const TableStatus& status, const web::History::Outlook& outlook, WallTime now) {
  json part = status.record.part;
  part.update({{"table", status.table},
               {"state", StateOf(status, now)},
               {"detail", status.fault},
               {"rate", web::Rounded(outlook.rate)},
               {"eta_seconds", web::Rounded(outlook.eta_seconds)},
               {"shards", status.relay.shards},
               {"shards_held", status.relay.shards_held},
               {"last_publish_at", TimeOrNull(status.relay.last_publish)},
               {"counters", {{"published", status.relay.published}}},
               {"topics", json::array()}});
  for (const auto& [name, topic] : status.relay.topics) {
    json routes = json::array();
    for (const RouteStatus& route : topic.routes) {
      routes.push_back({{"route", route.route},
                        {"outage", route.outage},
                        {"taken", route.taken},
                        {"last_taken_at", TimeOrNull(route.last_taken)}});
    }
    part["topics"].push_back({{"topic", name},
                              {"outage", topic.outage},
                              {"published", topic.published},
                              {"last_publish_at", TimeOrNull(topic.last_publish)},
                              {"routes", std::move(routes)}});
  }
  return part;
}

}  // namespace

StatusReporter::StatusReporter(PublisherService& service, RunningConfig config,
                               MetricsRegistry& metrics, HttpServer& http)
    : service_(service),
      daemon_("publisher", service.config().instance, std::move(config), metrics),
      page_(http, [this] { return Compose(); }) {}

json StatusReporter::Compose() {
  const WallTime now = Clock::System().Now();
  OutboxWatch& watch = service_.outboxes();
  watch.SetWatched(page_.AskedWithin(kWatched));
  const std::vector<TableStatus> tables = service_.Tables();
  std::vector<web::History::Part> history;
  for (const TableStatus& table : tables) {
    web::History::Part& part = history.emplace_back();
    part.name = table.table;
    part.done = static_cast<double>(table.relay.published);
    if (table.record.known) part.left = static_cast<double>(table.record.pending);
  }
  history_.Add(now, history);

  json document = daemon_.Head(service_.NotReady(), watch.database(), now);
  document["ctl"] = "lockstepctl --database '" + watch.database().address() + "'";
  document["history"] = history_.ToJson("outboxes", "pending");
  document["instances"] = watch.Publishers();
  document["outboxes"] = json::array();
  for (const TableStatus& table : tables) {
    document["outboxes"].push_back(ToJson(table, history_.Of(table.table), now));
  }
  return document;
}

}  // namespace lockstep::publisher
