#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "envelope/http/endpoint_options.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "publisher/dispatch/route.h"

namespace lockstep {
class ConfigSection;
struct HttpOptions;
}  // namespace lockstep
namespace lockstep::log {
struct Options;
}

// How a publisher does its work. Public: docs/embedding.md.
namespace lockstep::publisher {

// What the later versions of an aggregate do while one of it is dead.
enum class OnDead {
  kHoldKey,  // wait for an operator: order holds
  kSkip,     // go on without it
};

// What a running relay follows when the configuration is read again.
struct FollowedRelayOptions {
  int batch_size = 100;          // rows per claim
  int max_in_flight = 2'000;     // rows claimed and not yet answered by the bus
  int max_requests = 16;         // requests to the bus under way
  Millis poll_interval{30'000};  // the idle poll doubles up to this, with full jitter
  RetryPolicy retry;             // 25 attempts, 1 s doubling to 60 s, 0-200 ms added
};

// How one outbox is relayed.
struct RelayOptions : FollowedRelayOptions {
  std::string table;          // schema.name
  bool single_active = true;  // one shard; false = `shards`
  int shards = 0;             // 0 = 1 when single_active, else 16
  Millis poll_floor{250};     // where the idle poll starts
  Millis lock_ttl{60'000};    // a lease that is not renewed ends after this
  Millis dispatch_timeout{30'000};
  int last_error_max_bytes = 2'048;
  OnDead on_dead = OnDead::kHoldKey;

  int ShardCount() const { return shards > 0 ? shards : (single_active ? 1 : 16); }
  absl::Status Validate() const;
};

struct CleanerOptions {
  bool enabled = true;
  std::vector<std::string> tables;  // empty = the relay's
  Millis interval{60'000};
  Millis retention{168 * 3'600'000LL};         // published rows are kept this long
  Millis dead_retention{0};                    // 0 = dead rows are kept
  Millis audit_retention{400LL * 86'400'000};  // of the audit, at least 30 days; 0 = for ever
  int batch_size = 1'000;                      // rows per DELETE
};

// A control message per topic, for honest lag at the consumer. Off unless topics are named.
struct HeartbeatOptions {
  std::vector<std::string> topics;  // logical ones
  Millis interval{5'000};
};

// Rows of source tables that operators have this publisher send: docs/replicas.md.
struct BackfillOptions {
  bool enabled = true;
  std::string database;  // a streaming replica to read them from; empty = the outbox's database
  Millis lease{60'000};  // after the last sign of one publisher another goes on
};

// How shards are held; see shard_owner.h.
struct OwnershipOptions {
  Millis ping_interval{3'000};
  Millis session_timeout{15'000};  // the server ends a session that is not pinged
  Millis watchdog{30'000};         // a relay whose loop stands still this long loses its shards
};

struct MetricsOptions {
  bool enabled = true;
  std::string path = "/metrics";
  Millis backlog_interval{30'000};  // how often rows are counted for outbox_pending and others
};

// How events go to URLs (docs/routes.md).
struct RouteOptions {
  RouteOptions() { defaults.settings.timeout = Millis(10'000); }

  envelope::EndpointOptions defaults;
  int concurrency = 64;                                        // requests under way per host
  std::map<std::string, envelope::EndpointOptions> endpoints;  // by URL, in place of the defaults
};

enum class TopicStyle { kAny, kVersioned };

// Everything but the bus, the HTTP endpoint and the log.
struct PublisherConfig {
  std::string database;
  std::string instance;  // locked_by; empty = host:pid
  bool relay_enabled = true;
  std::vector<RelayOptions> tables;
  OwnershipOptions ownership;
  CleanerOptions cleaner;
  HeartbeatOptions heartbeat;
  BackfillOptions backfill;
  Topics topics;  // logical -> routes: docs/routes.md
  RouteOptions routes;
  bool any_topic = false;  // others go to the topic of their name; false = such a row is dead
  TopicStyle topic_style = TopicStyle::kAny;
  MetricsOptions metrics;
  bool mask_keys = false;      // platform/log/masking.h
  Millis ready_grace{30'000};  // readiness outlives a lost database by so long

  absl::Status Validate() const;
  // Whether anything of it goes to a bus.
  bool NeedsBus() const;
};

// The keys of lockstep-publisher, but for those of Pub/Sub.
void Bind(ConfigSection& config, PublisherConfig& options, HttpOptions& http, log::Options& log);

}  // namespace lockstep::publisher
