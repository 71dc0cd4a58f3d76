#include "publisher/service/status_reporter.h"

#include <prometheus/gauge.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "platform/config/database_address.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/version.h"
#include "publisher/observe/relay_status.h"
#include "publisher/service/publisher.h"
#include "web/document.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using web::AgeMs;
using web::TimeOrNull;

constexpr Millis kReadEvery{2'000};
// While nobody looks: an idle publisher leaves the database alone.
constexpr Millis kReadUnwatchedEvery{60'000};
constexpr Millis kWatched{30'000};
constexpr Millis kQuietAfter{60'000};

prometheus::Gauge& Gauge(MetricsRegistry& registry, const std::string& table, const char* name,
                         const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({{"table", table}});
}

std::string StateOf(const TableStatus& status, const OutboxRecord& record, WallTime now) {
  if (!status.relayed) return "off";
  if (!status.fault.empty()) return "waiting";
  const auto out = [](const TopicStatus& topic) { return !topic.outage.empty(); };
  if (std::any_of(status.topics.begin(), status.topics.end(), out)) return "out of reach";
  if (status.shards_held == 0) return "standby";
  const bool silent = AgeMs(status.last_publish, now) > kQuietAfter.count();
  if (record.pending == 0) return silent ? "quiet" : "relaying";
  return silent && record.oldest > kQuietAfter ? "stuck" : "relaying";
}

}  // namespace

// One outbox, between two rounds.
struct StatusReporter::Table {
  Table(MetricsRegistry& registry, const std::string& name)
      : pending(Gauge(registry, name, "outbox_pending", "rows not yet published, as last counted")),
        locked(Gauge(registry, name, "outbox_locked", "rows under a lease, as last counted")),
        oldest(Gauge(registry, name, "outbox_oldest_pending_seconds",
                     "age of the oldest row that may go; held and dead ones do not count")),
        dead(Gauge(registry, name, "outbox_dead", "dead rows that wait for a decision")),
        quarantined(Gauge(registry, name, "outbox_quarantined", "rows in quarantine")),
        shards(Gauge(registry, name, "outbox_shards_held", "shards that this instance relays")) {}

  void Set(const OutboxRecord& now) {
    pending.Set(static_cast<double>(now.pending));
    locked.Set(static_cast<double>(now.locked));
    oldest.Set(static_cast<double>(now.oldest.count()) / 1000);
    dead.Set(static_cast<double>(now.dead));
    quarantined.Set(static_cast<double>(now.quarantined));
    record = now;
  }

  prometheus::Gauge& pending;
  prometheus::Gauge& locked;
  prometheus::Gauge& oldest;
  prometheus::Gauge& dead;
  prometheus::Gauge& quarantined;
  prometheus::Gauge& shards;
  // Under StatusReporter::mu_: written by the thread that reads.
  json read = json::object();
  OutboxRecord record;
};

StatusReporter::StatusReporter(const PublisherService& service, RunningConfig config,
                               MetricsRegistry& metrics, HttpServer& http)
    : service_(service),
      started_at_(Clock::System().Now()),
      address_(WithoutPassword(service.config().database)),
      reading_state_(address_, started_at_),
      reader_(service.config().database),
      ready_(prometheus::BuildGauge()
                 .Name("lockstep_ready")
                 .Help("1 while /readyz says yes")
                 .Register(metrics)
                 .Add({{"role", "publisher"}})),
      http_(http),
      config_(std::move(config)),
      reading_(kReadEvery, [this] { ReadDatabase(); }),
      page_(http, [this] { return Compose(); }) {
  for (const RelayOptions& table : service.config().tables) {
    tables_[table.table] = std::make_unique<Table>(metrics, table.table);
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
  const WallTime began = Clock::System().Now();
  if (const WallTime good = reading_state_.good_since();
      http_.SinceLastRequest() > kWatched && good != WallTime() &&
      AgeMs(good, began) < kReadUnwatchedEvery.count()) {
    return reading_state_.Skipped(began);
  }
  std::string error;
  for (const auto& [name, table] : tables_) {
    OutboxRecord record;
    auto part = reader_.Read(name, record);
    if (!part.ok()) {
      error = MessageOf(part.status());
      break;
    }
    const std::scoped_lock lock(mu_);
    table->read = *std::move(part);
    table->Set(record);
  }
  reading_state_.Done(std::move(error), Clock::System().Now());
}

void StatusReporter::SetConfig(const RunningConfig& config) {
  const std::scoped_lock lock(mu_);
  config_ = config;
}

json StatusReporter::Compose() {
  const WallTime now = Clock::System().Now();
  const std::vector<std::string> reasons = service_.NotReady();
  ready_.Set(reasons.empty() ? 1 : 0);
  json document = {{"role", "publisher"},
                   {"version", kVersion},
                   {"instance", service_.config().instance},
                   {"started_at", FormatTimestamp(started_at_)},
                   {"ctl", "lockstepctl --database '" + address_ + "'"},
                   {"ready", reasons.empty()},
                   {"reasons", reasons},
                   {"outboxes", json::array()}};
  for (const TableStatus& status : service_.Tables()) {
    document["outboxes"].push_back(ComposeTable(status, now));
  }
  document["database"] = reading_state_.ToJson(now);
  const std::scoped_lock lock(mu_);
  document["config"] = web::ConfigJson(config_);
  return document;
}

json StatusReporter::ComposeTable(const TableStatus& status, WallTime now) {
  Table& table = *tables_.at(status.table);
  table.shards.Set(status.shards_held);
  json part;
  OutboxRecord record;
  {
    const std::scoped_lock lock(mu_);
    part = table.read;
    record = table.record;
  }
  part.update({{"table", status.table},
               {"state", StateOf(status, record, now)},
               {"detail", status.fault},
               {"shards", status.shards},
               {"shards_held", status.shards_held},
               {"last_publish_at", TimeOrNull(status.last_publish)},
               {"counters", {{"published", status.published}}},
               {"topics", json::array()}});
  for (const TopicStatus& topic : status.topics) {
    part["topics"].push_back({{"topic", topic.topic},
                              {"outage", topic.outage},
                              {"published", topic.published},
                              {"last_publish_at", TimeOrNull(topic.last_publish)}});
  }
  return part;
}

}  // namespace lockstep::publisher
