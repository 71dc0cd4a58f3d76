#include "sagas/orchestrator/options.h"

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/daemon/http_server.h"
#include "platform/duration.h"
#include "platform/http_client/url.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::sagas {
namespace {

// A map of names to whole numbers above 0.
void BindCounts(ConfigSection& config, const std::string& name, std::map<std::string, int>* counts,
                const std::string& help) {
  std::map<std::string, std::string> texts;
  config.Key(name, &texts, help);
  counts->clear();
  for (const auto& [of, text] : texts) {
    int count = 0;
    if (!ParseWhole(text, &count) || count < 1) {
      config.Error(
          fmt::format("{}: {} is '{}'; it must be a whole number above 0", name, of, text));
      continue;
    }
    (*counts)[of] = count;
  }
}

void BindLimits(ConfigSection& config, EngineLimits& limits) {
  ConfigSection followed = config.Followed();
  followed.Key("in_hand", &limits.in_hand,
               "sagas that this orchestrator has under a lease at once");
  BindCounts(followed, "definitions", &limits.definitions,
             "of those, of one definition at most: a map of names and numbers");
  BindCounts(followed, "tags", &limits.tags,
             "steps of a concurrency_tag that this orchestrator has under way at once: a map of "
             "tags and numbers");
}

void BindRetention(ConfigSection& config, RetentionOptions& retention) {
  ConfigSection followed = config.Followed();
  config.Key("enabled", &retention.enabled, "delete sagas that have ended long ago");
  followed.Key("interval", &retention.interval, "how often");
  followed.Key("retention", &retention.retention,
               "how long sagas that are Completed, Failed or Cancelled are kept");
  followed.Key("dead_retention", &retention.dead_retention,
               "how long dead sagas are kept, those in quarantine excepted; 0 = for ever");
  followed.Key("batch_size", &retention.batch_size, "sagas per DELETE");
}

absl::Status Positive(std::string_view name, int64_t value) {
  if (value > 0) return absl::OkStatus();
  return InvalidArgument("{} must be above 0", name);
}

}  // namespace

void Bind(ConfigSection& config, OrchestratorOptions& options, HttpOptions& http,
          log::Options& log) {
  EngineOptions& engine = options.engine;
  BindDatabase(config, &engine.database, "Postgres, as postgresql://user@host/database");
  config.Key("instance", &options.instance, "this orchestrator's name; empty = host:pid");
  config.Key("workers", &engine.workers,
             "threads with a session each: so many sql: and bus: steps at a time");
  config.Key("lease", &engine.lease,
             "others take a saga over so long after the last sign of life of its orchestrator");
  config.Key("heartbeat", &engine.heartbeat, "how often leases are renewed");
  config.Key("poll_interval", &engine.poll_interval,
             "longest wait between two looks when idle; writers wake it besides");
  config.Section("limits", [&](ConfigSection& section) { BindLimits(section, engine.limits); });
  config.Section("actions", [&](ConfigSection& section) {
    section.Key("origins", &engine.http.origins,
                "where http: steps may go, as https://pay.example.com; empty = anywhere");
    section.Key("concurrency", &engine.http.concurrency, "requests under way per host");
    http::Settings& settings = engine.http.endpoint.settings;
    section.Key("connect_timeout", &settings.connect_timeout,
                "longest time for name, connection and TLS");
    section.Key("allow_private", &settings.allow_private,
                "addresses of this machine and of private networks may be reached");
    section.Key("ca_file", &settings.ca_file,
                "PEM file with the CAs that sign the servers' certificates; empty = the system's");
    section.Key("proxy", &settings.proxy,
                "http://host:port to go through; empty = none, whatever the environment says");
    section.Key("secret_file", &engine.http.endpoint.secret_file,
                "secrets that sign requests, one a line, the newest first; read again when it "
                "changes");
    section.Key("headers_file", &engine.http.endpoint.headers_file,
                "lines of `Name: value` that go with every request; read again when it changes");
    for (std::string* file : {&settings.ca_file, &engine.http.endpoint.secret_file,
                              &engine.http.endpoint.headers_file}) {
      if (file->empty() || file->front() == '/' || section.Directory().empty()) continue;
      *file = section.Directory() + "/" + *file;
    }
  });
  config.Section("retention",
                 [&](ConfigSection& section) { BindRetention(section, options.retention); });
  config.Section("health", [&](ConfigSection& health) {
    health.Key("database_grace", &options.ready_grace,
               "readiness outlives a lost database by so long");
  });
  config.Section("http", [&](ConfigSection& section) { lockstep::Bind(section, http); });
  config.Section("metrics", [&](ConfigSection& metrics) {
    metrics.Key("enabled", &options.metrics, "serve Prometheus metrics",
                "PROMETHEUS_METRICS_ENABLED");
    metrics.Key("path", &options.metrics_path, "where", "PROMETHEUS_METRICS_PATH");
    metrics.Key("backlog_interval", &options.backlog_interval,
                "how often sagas are counted for tx_saga_open and tx_saga_dead");
  });
  config.Section("log", [&](ConfigSection& section) { log::Bind(section, log); });
  BindMasking(config, &options.mask_keys);
}

absl::Status OrchestratorOptions::Validate() const {
  if (engine.database.empty()) {
    return InvalidArgument(
        "no database is named: set `database`, --database postgresql://user@host/name or "
        "LOCKSTEP_DATABASE");
  }
  RETURN_IF_ERROR(Positive("workers", engine.workers));
  RETURN_IF_ERROR(Positive("limits.in_hand", engine.limits.in_hand));
  RETURN_IF_ERROR(Positive("actions.concurrency", engine.http.concurrency));
  RETURN_IF_ERROR(Positive("heartbeat", engine.heartbeat.count()));
  RETURN_IF_ERROR(Positive("poll_interval", engine.poll_interval.count()));
  RETURN_IF_ERROR(Positive("retention.interval", retention.interval.count()));
  RETURN_IF_ERROR(Positive("retention.batch_size", retention.batch_size));
  RETURN_IF_ERROR(Positive("metrics.backlog_interval", backlog_interval.count()));
  if (engine.workers > 256) return InvalidArgument("workers must be at most 256");
  if (engine.lease > Millis(600'000)) return InvalidArgument("lease must be at most 10m");
  if (engine.lease < 2 * engine.heartbeat) {
    return InvalidArgument("lease is {}; it must be at least twice the heartbeat, which is {}",
                           FormatDuration(engine.lease), FormatDuration(engine.heartbeat));
  }
  for (const std::string& origin : engine.http.origins) {
    const auto url = http::ParseUrl(origin);
    if (!url.ok()) return InvalidArgument("actions.origins: {}", MessageOf(url.status()));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::sagas
