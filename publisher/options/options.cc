#include "publisher/options/options.h"

#include <algorithm>
#include <set>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/daemon/http_server.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/shown_address.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/dispatch/topic_style.h"

namespace lockstep::publisher {
namespace {

void BindRetry(ConfigSection& config, RetryPolicy& retry) {
  config.Key("base", &retry.base, "wait after the first failure that blames a row");
  config.Key("factor", &retry.factor, "growth from one failure to the next");
  config.Key("cap", &retry.cap, "longest wait");
  config.Choice("jitter", &retry.jitter,
                {{"additive", RetryPolicy::Jitter::kAdditive},
                 {"proportional", RetryPolicy::Jitter::kProportional},
                 {"full", RetryPolicy::Jitter::kFull}},
                "kind of jitter");
  config.Key("jitter_amount", &retry.jitter_amount,
             "milliseconds when additive, a fraction when proportional");
}

// The settings that a table may have of its own. `common` are those of all tables, which have
// environment names.
void BindTable(ConfigSection& config, RelayOptions& options, bool common) {
  ConfigSection followed = config.Followed();
  const auto env = [common](const char* name) { return common ? name : ""; };
  config.Key("single_active", &options.single_active, "one publisher at a time relays the table",
             env("OUTBOX_RELAY_SINGLE_ACTIVE"));
  config.Key("shards", &options.shards,
             "parts that publishers share a table by; 0 = 1 when single_active, else 16");
  followed.Key("poll_interval", &options.poll_interval, "longest wait between two looks when idle",
               env("OUTBOX_RELAY_POLL_INTERVAL"));
  followed.Key("batch_size", &options.batch_size, "rows per claim", env("OUTBOX_RELAY_BATCH_SIZE"));
  followed.Key("max_in_flight", &options.max_in_flight,
               "rows claimed and not yet answered by the bus");
  followed.Key("max_requests", &options.max_requests, "requests to the bus under way");
  config.Key("lock_ttl", &options.lock_ttl, "how long a lease lasts unless it is renewed",
             env("OUTBOX_RELAY_LOCK_TTL"));
  followed.Key("max_attempts", &options.retry.max_attempts,
               "failures that blame a row before it is dead", env("OUTBOX_RELAY_MAX_ATTEMPTS"));
  followed.Section("retry", [&](ConfigSection& retry) { BindRetry(retry, options.retry); });
  config.Key("dispatch_timeout", &options.dispatch_timeout,
             "longest time for one publish, its retries included",
             env("OUTBOX_RELAY_DISPATCH_TIMEOUT"));
  config.Key("last_error_max_bytes", &options.last_error_max_bytes, "what is kept of an error",
             env("OUTBOX_LAST_ERROR_MAX_BYTES"));
  config.Choice("on_dead", &options.on_dead,
                {{"hold_key", OnDead::kHoldKey}, {"skip", OnDead::kSkip}},
                "what the later versions of an aggregate do behind a dead row");
}

void BindRelay(ConfigSection& config, PublisherConfig& options) {
  config.Key("enabled", &options.relay_enabled, "false keeps the data and dispatches nothing",
             "OUTBOX_RELAY_ENABLED");
  RelayOptions common;
  BindTable(config, common, /*common=*/true);
  config.Key("ping_interval", &options.ownership.ping_interval,
             "how often shard locks are checked and shared out");
  config.Key("session_timeout", &options.ownership.session_timeout,
             "the server takes the shards of a publisher that is silent this long");
  config.Key("watchdog", &options.ownership.watchdog,
             "a publisher whose loop stands still this long gives up its shards");
  options.tables.clear();
  config.List(
      "tables", "name",
      [&](ConfigSection& item) {
        RelayOptions table = common;
        item.Key("name", &table.table, "an outbox, as schema.name");
        BindTable(item, table, /*common=*/false);
        if (table.table.empty()) return;  // --help
        if (const absl::Status valid = table.Validate(); !valid.ok()) item.Error(MessageOf(valid));
        options.tables.push_back(std::move(table));
      },
      "the outboxes to relay: names, or maps of a name and settings of its own",
      "OUTBOX_RELAY_TABLES");
}

void BindCleaner(ConfigSection& config, CleanerOptions& cleaner) {
  ConfigSection followed = config.Followed();
  config.Key("enabled", &cleaner.enabled, "delete old published rows", "OUTBOX_CLEANER_ENABLED");
  config.Key("tables", &cleaner.tables, "outboxes to clean; empty = the relay's",
             "OUTBOX_CLEANER_TABLES");
  followed.Key("interval", &cleaner.interval, "how often", "OUTBOX_CLEANER_INTERVAL");
  followed.Key("retention", &cleaner.retention, "how long published rows are kept",
               "OUTBOX_CLEANER_RETENTION");
  followed.Key("dead_retention", &cleaner.dead_retention,
               "how long dead rows are kept; 0 = for ever", "OUTBOX_CLEANER_DEAD_RETENTION");
  followed.Key("audit_retention", &cleaner.audit_retention,
               "how long the audit is kept, 30 days at least; 0 = for ever");
  followed.Key("batch_size", &cleaner.batch_size, "rows per DELETE");
}

// Each topic's routes, and what goes with them, told where they stand.
void CheckTopics(ConfigSection& config, const PublisherConfig& options) {
  for (const auto& [topic, routes] : options.topics) {
    if (const auto parsed = ParseRoutes(routes); !parsed.ok()) {
      config.ErrorAt("topics", topic,
                     fmt::format("topics.{}: {}", topic, MessageOf(parsed.status())));
    }
  }
}

bool GoesTo(const Topics& topics, const std::string& url) {
  return std::ranges::any_of(topics, [&](const auto& topic) {
    return std::ranges::any_of(topic.second, [&](const std::string& text) {
      const auto route = ParseRoute(text);
      return route.ok() && route->kind == Route::Kind::kHttp && route->target == url;
    });
  });
}

void BindRoutes(ConfigSection& config, const Topics& topics, RouteOptions& routes) {
  config.Key("concurrency", &routes.concurrency, "requests under way per host");
  Bind(config, routes.defaults);
  routes.endpoints.clear();
  config.List(
      "endpoints", "url",
      [&](ConfigSection& item) {
        std::string url;
        envelope::EndpointOptions own = routes.defaults;
        item.Key("url", &url, "an address that `topics` names");
        Bind(item, own);
        if (url.empty()) return;  // --help
        const auto route = ParseRoute(url);
        if (!route.ok() || route->kind != Route::Kind::kHttp) {
          return item.Error(route.ok() ? "an endpoint's url is http://… or https://…"
                                       : MessageOf(route.status()));
        }
        if (!GoesTo(topics, route->target)) {
          item.Error(fmt::format("no topic goes to {}: write the address as `topics` has it",
                                 ShownAddresses(url)));
        }
        if (!routes.endpoints.emplace(route->target, std::move(own)).second) {
          item.Error(fmt::format("{} stands twice", route->name));
        }
      },
      "settings of one address, in place of those above");
}

absl::Status Positive(std::string_view name, int64_t value) {
  if (value > 0) return absl::OkStatus();
  return InvalidArgument("{} must be above 0", name);
}

}  // namespace

absl::Status RelayOptions::Validate() const {
  RETURN_IF_ERROR(postgres::QualifiedName::Parse(table).status());
  RETURN_IF_ERROR(Positive("batch_size", batch_size));
  RETURN_IF_ERROR(Positive("max_in_flight", max_in_flight));
  RETURN_IF_ERROR(Positive("max_requests", max_requests));
  RETURN_IF_ERROR(Positive("poll_interval", poll_interval.count()));
  RETURN_IF_ERROR(Positive("dispatch_timeout", dispatch_timeout.count()));
  RETURN_IF_ERROR(Positive("last_error_max_bytes", last_error_max_bytes));
  if (lock_ttl < Millis(1000)) return InvalidArgument("lock_ttl must be 1s or more");
  if (shards < 0 || shards > 1024) return InvalidArgument("shards must be between 0 and 1024");
  if (single_active && shards > 1) {
    return InvalidArgument("{} shards are not single_active: set single_active: false", shards);
  }
  return absl::OkStatus();
}

absl::Status PublisherConfig::Validate() const {
  if (database.empty()) {
    return InvalidArgument(
        "no database is named: set `database`, --database postgresql://user@host/name or "
        "LOCKSTEP_DATABASE");
  }
  std::set<std::string> names;
  for (const RelayOptions& relay : tables) {
    RETURN_IF_ERROR(relay.Validate());
    if (!names.insert(relay.table).second) {
      return InvalidArgument("relay.tables names {} twice", relay.table);
    }
  }
  for (const std::string& name : cleaner.tables) {
    RETURN_IF_ERROR(postgres::QualifiedName::Parse(name).status());
  }
  RETURN_IF_ERROR(Positive("cleaner.interval", cleaner.interval.count()));
  RETURN_IF_ERROR(Positive("cleaner.batch_size", cleaner.batch_size));
  RETURN_IF_ERROR(Positive("heartbeat.interval", heartbeat.interval.count()));
  if (backfill.lease < Millis(1'000) || backfill.lease > Millis(240'000)) {
    return InvalidArgument("backfill.lease is {}; it must be from 1s to 4m",
                           FormatDuration(backfill.lease));
  }
  RETURN_IF_ERROR(Positive("metrics.backlog_interval", metrics.backlog_interval.count()));
  RETURN_IF_ERROR(Positive("relay.ping_interval", ownership.ping_interval.count()));
  if (ownership.session_timeout < 2 * ownership.ping_interval) {
    return InvalidArgument("relay.session_timeout must be at least twice relay.ping_interval");
  }
  if (topic_style == TopicStyle::kVersioned) {
    std::vector<std::string> logical_topics = heartbeat.topics;
    for (const auto& [logical, target] : topics) logical_topics.push_back(logical);
    for (const std::string& topic : logical_topics) {
      if (!IsVersionedTopic(topic)) {
        return InvalidArgument("topic {} is not <module>.<aggregate>.<event>.vN (topic_style)",
                               topic);
      }
    }
  }
  const auto bus_topics = BusTopics(topics);
  for (const std::string& topic : heartbeat.topics) {
    if (!any_topic && !topics.contains(topic)) {
      return InvalidArgument("heartbeat.topics names {}, which the table `topics` does not have",
                             topic);
    }
    if (topics.contains(topic) && !bus_topics.contains(topic)) {
      return InvalidArgument(
          "heartbeat.topics names {}, which goes to no bus: heartbeats are for consumers of "
          "Pub/Sub",
          topic);
    }
  }
  for (const auto& [topic, routes] : topics) {
    const auto parsed = ParseRoutes(routes);
    if (!parsed.ok()) return InvalidArgument("topics.{}: {}", topic, MessageOf(parsed.status()));
  }
  RETURN_IF_ERROR(Positive("routes.concurrency", routes.concurrency));
  if (metrics.path.empty() || metrics.path[0] != '/') {
    return InvalidArgument("metrics.path must start with '/'");
  }
  return absl::OkStatus();
}

bool PublisherConfig::NeedsBus() const {
  return any_topic || topics.empty() || !BusTopics(topics).empty();
}

void Bind(ConfigSection& config, PublisherConfig& options, HttpOptions& http, log::Options& log) {
  BindDatabase(config, &options.database, "Postgres, as postgresql://user@host/database");
  config.Key("instance", &options.instance, "this publisher's name; empty = host:pid");
  config.Section("relay", [&](ConfigSection& relay) { BindRelay(relay, options); });
  config.Section("cleaner", [&](ConfigSection& cleaner) { BindCleaner(cleaner, options.cleaner); });
  std::map<std::string, std::vector<std::string>> topics;
  config.Key("topics", &topics,
             "logical topic -> route or list of routes: a Pub/Sub topic (bus:…), http://…, "
             "https://…, custom:…; a row of one that is not named here is dead");
  options.topics = Topics(topics.begin(), topics.end());
  CheckTopics(config, options);
  config.Section(
      "routes", [&](ConfigSection& routes) { BindRoutes(routes, options.topics, options.routes); });
  config.Key("any_topic", &options.any_topic,
             "a topic that `topics` does not name goes to the Pub/Sub topic of its name");
  config.Choice("topic_style", &options.topic_style,
                {{"any", TopicStyle::kAny}, {"versioned", TopicStyle::kVersioned}},
                "versioned = logical topics are <module>.<aggregate>.<event>.vN");
  config.Section("heartbeat", [&](ConfigSection& heartbeat) {
    heartbeat.Key("topics", &options.heartbeat.topics,
                  "logical topics that get a heartbeat message; other consumers see it too");
    heartbeat.Key("interval", &options.heartbeat.interval, "how often");
  });
  config.Section("backfill", [&](ConfigSection& backfill) {
    backfill.Key("enabled", &options.backfill.enabled, "work on backfills of the relay's outboxes");
    BindDatabase(backfill, &options.backfill.database,
                 "a streaming replica to read backfills from; empty = `database`");
    backfill.Key("lease", &options.backfill.lease,
                 "another publisher goes on with a backfill so long after the last sign of the one "
                 "that was at it");
  });
  config.Section("health", [&](ConfigSection& health) {
    health.Key("database_grace", &options.ready_grace,
               "readiness outlives a lost database by so long");
  });
  config.Section("http", [&](ConfigSection& section) { Bind(section, http); });
  config.Section("metrics", [&](ConfigSection& metrics) {
    metrics.Key("enabled", &options.metrics.enabled, "serve Prometheus metrics",
                "PROMETHEUS_METRICS_ENABLED");
    metrics.Key("path", &options.metrics.path, "where", "PROMETHEUS_METRICS_PATH");
    metrics.Key("backlog_interval", &options.metrics.backlog_interval,
                "how often rows are counted for outbox_pending, outbox_locked and tx_replay_total");
  });
  config.Section("log", [&](ConfigSection& section) { Bind(section, log); });
  BindMasking(config, &options.mask_keys);
}

}  // namespace lockstep::publisher
