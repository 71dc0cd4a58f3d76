#include "publisher/service/publisher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/host_name.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "publisher/backfill/worker.h"
#include "publisher/dispatch/pubsub_dispatcher.h"
#include "publisher/dispatch/topic_style.h"
#include "publisher/observe/readiness.h"
#include "publisher/observe/relay_log.h"
#include "publisher/observe/relay_metrics.h"
#include "publisher/observe/relay_status.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/shard_locks.h"
#include "publisher/relay/relay.h"
#include "publisher/routes/route_dispatcher.h"
#include "publisher/service/outbox_watch.h"
#include "publisher/upkeep/heartbeat.h"
#include "publisher/upkeep/housekeeper.h"
#include "publisher/upkeep/shard_owner.h"
#include "pubsub/config.h"
#include "pubsub/transport.h"

namespace lockstep::publisher {
namespace {

std::string DefaultInstance() { return fmt::format("{}:{}", HostName(), ::getpid()); }

// Tables of the relay are kept, and cleaned unless others are named for that.
std::vector<Housekeeper::Task> HousekeepingOf(const PublisherConfig& config) {
  std::vector<Housekeeper::Task> tasks;
  std::set<std::string> cleaned(config.cleaner.tables.begin(), config.cleaner.tables.end());
  for (const RelayOptions& relay : config.tables) {
    const bool clean =
        config.cleaner.enabled && (config.cleaner.tables.empty() || cleaned.erase(relay.table) > 0);
    if (!clean && !config.relay_enabled) continue;
    // Twice, for jitter may lengthen a wait.
    tasks.push_back({relay.table, clean, config.relay_enabled, relay.on_dead == OnDead::kHoldKey,
                     2 * relay.retry.cap + relay.lock_ttl});
  }
  if (config.cleaner.enabled) {
    for (const std::string& table : cleaned) tasks.push_back({.table = table, .clean = true});
  }
  return tasks;
}

}  // namespace

// A relay, and those who hear what it does.
struct PublisherService::Table final : RelayEvents {
  Table(const RelayOptions& options, const PublisherConfig& config, Dispatcher& dispatcher,
        MetricsRegistry& registry)
      : log(options.table),
        metrics(registry, options.table, TopicLabels(config.topics)),
        status(TopicLabels(config.topics)),
        relay(options,
              {.database = config.database,
               .instance = config.instance,
               .remember = std::min(Relay::Environment().remember, config.cleaner.retention / 2)},
              dispatcher, *this) {}

  void OnClaimed(const std::vector<OutboxRow>& rows) override {
    for (RelayEvents* listener : listeners) listener->OnClaimed(rows);
  }
  void OnRow(const RowEvent& event) override {
    for (RelayEvents* listener : listeners) listener->OnRow(event);
  }
  void OnDatabaseError(const absl::Status& error) override {
    for (RelayEvents* listener : listeners) listener->OnDatabaseError(error);
  }
  void OnGone(int64_t rows) override {
    for (RelayEvents* listener : listeners) listener->OnGone(rows);
  }
  void OnShards(const std::vector<int>& held, int of) override {
    for (RelayEvents* listener : listeners) listener->OnShards(held, of);
  }

  RelayLog log;
  RelayMetrics metrics;
  RelayStatus status;
  const std::array<RelayEvents*, 3> listeners = {&log, &metrics, &status};
  Relay relay;  // last: its thread uses the rest
};

struct PublisherService::Parts {
  explicit Parts(Millis grace) : readiness(grace) {}

  Table* Find(const std::string& name) const {  // null = it is not relayed here
    for (const auto& table : tables) {
      if (table->relay.options().table == name) return table.get();
    }
    return nullptr;
  }

  std::unique_ptr<RouteDispatcher> routes;  // before the relays, which use both
  std::unique_ptr<Dispatcher> styled;
  std::vector<std::unique_ptr<Table>> tables;
  std::unique_ptr<Heartbeat> heartbeat;
  std::unique_ptr<BackfillWorker> backfills;
  std::unique_ptr<ShardOwner> owner;
  std::unique_ptr<Housekeeper> housekeeper;
  std::unique_ptr<OutboxWatch> outboxes;
  Readiness readiness;
};

PublisherService::PublisherService(PublisherConfig config, Dispatcher& dispatcher,
                                   MetricsRegistry& metrics)
    : config_(std::move(config)),
      metrics_(metrics),
      parts_(std::make_unique<Parts>(config_.ready_grace)) {
  if (config_.instance.empty()) config_.instance = DefaultInstance();
  parts_->routes = std::make_unique<RouteDispatcher>(config_, dispatcher, metrics);
  Dispatcher* used = parts_->routes.get();
  if (config_.topic_style == TopicStyle::kVersioned) {
    parts_->styled = std::make_unique<VersionedTopicsOnly>(*used);
    used = parts_->styled.get();
  }
  if (config_.relay_enabled) {
    for (const RelayOptions& options : config_.tables) {
      parts_->tables.push_back(std::make_unique<Table>(options, config_, *used, metrics));
    }
  }
  parts_->owner = std::make_unique<ShardOwner>(config_.ownership, config_.database, Relays());
  parts_->housekeeper =
      std::make_unique<Housekeeper>(config_.cleaner, config_.database, HousekeepingOf(config_));

  OutboxWatch::Parts watch{.database = config_.database,
                           .tables = {},
                           .every = config_.metrics.backlog_interval,
                           .counts_replays =
                               [this](const std::string& name) {
                                 const Table* const table = parts_->Find(name);
                                 return table != nullptr && table->relay.OwnsFirstShard();
                               },
                           .metrics = metrics,
                           .instance = config_.instance};
  for (const RelayOptions& options : config_.tables) {
    watch.tables.push_back(options.table);
    ShardsHeld(metrics, options.table);  // shown as 0 where nothing is relayed
    BackfillRows(metrics, options.table);
  }
  parts_->outboxes = std::make_unique<OutboxWatch>(std::move(watch));
}

std::vector<Relay*> PublisherService::Relays() const {
  std::vector<Relay*> relays;
  for (const auto& table : parts_->tables) relays.push_back(&table->relay);
  return relays;
}

PublisherService::~PublisherService() { Stop(); }

void PublisherService::AddRoute(const std::string& name, Dispatcher& dispatcher) {
  parts_->routes->Add(name, dispatcher);
}

void PublisherService::SetHeartbeat(pubsub::Publisher& publisher, pubsub::Admin& admin,
                                    std::function<std::string(const std::string&)> topic) {
  if (config_.heartbeat.topics.empty() || !config_.relay_enabled) return;
  parts_->heartbeat = std::make_unique<Heartbeat>(config_.heartbeat, config_.database, Relays(),
                                                  publisher, admin, std::move(topic));
}

void PublisherService::SetBackfill(pubsub::Publisher& publisher,
                                   std::function<std::string(const std::string&)> topic) {
  if (!config_.backfill.enabled || !config_.relay_enabled || config_.tables.empty()) return;
  BackfillWorker::Options options{.database = config_.database,
                                  .replica = config_.backfill.database,
                                  .instance = config_.instance,
                                  .lease = config_.backfill.lease};
  for (const RelayOptions& relay : config_.tables) {
    const auto name = postgres::QualifiedName::Parse(relay.table);
    if (name.ok()) options.outboxes.push_back(name->Quoted());
  }
  const bool versioned = config_.topic_style == TopicStyle::kVersioned;
  parts_->backfills = std::make_unique<BackfillWorker>(
      std::move(options), publisher,
      [versioned, topic = std::move(topic)](const std::string& logical) {
        return versioned && !IsVersionedTopic(logical) ? "" : topic(logical);
      },
      metrics_);
}

absl::Status PublisherService::Check() const {
  RETURN_IF_ERROR(config_.Validate());
  RETURN_IF_ERROR(parts_->routes->Open());
  std::set<std::string> names(config_.cleaner.tables.begin(), config_.cleaner.tables.end());
  for (const RelayOptions& relay : config_.tables) names.insert(relay.table);
  ASSIGN_OR_RETURN(const auto locks, ShardLocks::Open(config_.database, Millis(0)));
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(name));
    RETURN_IF_ERROR(locks->Find(table).status());
  }
  return absl::OkStatus();
}

absl::Status PublisherService::Start() {
  MaskKeys(config().mask_keys);
  if (const std::string fault = UncheckedServer(config().database); !fault.empty()) {
    log::Warning(fault);
  }
  if (const absl::Status checked = Check(); !checked.ok()) {
    if (postgres::Classify(checked) != postgres::ErrorClass::kTransient) return checked;
    log::Warning("the database can't be reached yet; it is waited for", {{"error", checked}});
  }
  for (const auto& table : parts_->tables) RETURN_IF_ERROR(table->relay.Start());
  RETURN_IF_ERROR(parts_->owner->Start());
  if (parts_->heartbeat != nullptr) RETURN_IF_ERROR(parts_->heartbeat->Start());
  if (parts_->backfills != nullptr) RETURN_IF_ERROR(parts_->backfills->Start());
  RETURN_IF_ERROR(parts_->housekeeper->Start());
  return parts_->outboxes->Start();
}

void PublisherService::Stop() {
  std::vector<Service*> services = {parts_->outboxes.get(), parts_->housekeeper.get()};
  if (parts_->heartbeat != nullptr) services.push_back(parts_->heartbeat.get());
  if (parts_->backfills != nullptr) services.push_back(parts_->backfills.get());
  for (const auto& table : parts_->tables) services.push_back(&table->relay);
  StopTogether(services);
  parts_->owner->Stop();  // the relays were to finish under its locks
}

void PublisherService::GiveUpDraining() {
  for (const auto& table : parts_->tables) table->relay.GiveUpDraining();
}

absl::Status PublisherService::WaitUntilDrained() {
  absl::Status drained;
  for (const auto& table : parts_->tables) drained.Update(table->relay.WaitUntilDrained());
  RETURN_IF_ERROR(drained);
  ASSIGN_OR_RETURN(const auto session, postgres::Connection::Open({.url = config_.database}));
  for (const auto& table : parts_->tables) {
    const std::string& name = table->relay.options().table;
    ASSIGN_OR_RETURN(const auto qualified, postgres::QualifiedName::Parse(name));
    ASSIGN_OR_RETURN(const int64_t rows, CountRetries(*session, qualified));
    if (rows > 0) {
      return Unavailable("{} was not drained: {} of its rows failed and wait for another try", name,
                         rows);
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> PublisherService::NotReady() const {
  const SteadyTime now = Clock::System().Steady();
  std::vector<Health> parts;
  // Without a relay there is nothing to do, and that is done.
  if (!parts_->tables.empty()) parts.push_back({"shards", parts_->owner->health()});
  for (const auto& table : parts_->tables) {
    const SteadyTime turned = table->relay.last_turn();
    Health part{table->relay.options().table, table->relay.health(), turned};
    const auto still = now - turned;
    if (part.status.ok() && still > config_.ownership.watchdog) {
      part.status = Unavailable("its loop has stood still for {}",
                                FormatDuration(std::chrono::duration_cast<Millis>(
                                    std::chrono::floor<std::chrono::seconds>(still))));
    }
    parts.push_back(std::move(part));
  }
  return parts_->readiness.Judge(parts, now);
}

bool PublisherService::Alive() const {
  const SteadyTime now = Clock::System().Steady();
  return std::none_of(parts_->tables.begin(), parts_->tables.end(), [&](const auto& table) {
    return table->relay.health().ok() &&
           now - table->relay.last_turn() > config_.ownership.watchdog;
  });
}

void PublisherService::Reload(const PublisherConfig& fresh) {
  for (const RelayOptions& options : fresh.tables) {
    if (Table* const table = parts_->Find(options.table)) table->relay.Reconfigure(options);
  }
  parts_->housekeeper->Reconfigure(fresh.cleaner);
}

std::vector<TableStatus> PublisherService::Tables() const {
  std::vector<TableStatus> tables;
  for (const RelayOptions& options : config_.tables) {
    TableStatus& status = tables.emplace_back();
    status.table = options.table;
    status.record = parts_->outboxes->Of(options.table);
    const Table* const table = parts_->Find(options.table);
    if (table == nullptr) continue;
    status.relayed = true;
    status.fault = MessageOf(table->relay.health());
    const std::string stranger = parts_->owner->Stranger(options.table);
    if (status.fault.empty() && !stranger.empty()) {
      status.fault = fmt::format("a session that is no publisher holds a shard: {}", stranger);
    }
    status.relay = table->status.Read();
    for (auto& [topic, record] : status.relay.topics) record.routes = parts_->routes->Status(topic);
  }
  return tables;
}

void NoBus::Dispatch(const std::string&, const std::string& topic, std::vector<RowPtr> rows,
                     Done done) {
  const absl::Status refused = InvalidArgument(
      "topic {} is not in the publisher's table `topics`, and this publisher has no bus", topic);
  done(std::vector<DispatchResult>(rows.size(),
                                   {.status = refused, .code = "TOPIC.NOT_CONFIGURED"}));
}

OutboxWatch& PublisherService::outboxes() { return *parts_->outboxes; }

std::unique_ptr<Dispatcher> MakePubsubDispatcher(pubsub::Transport& transport,
                                                 const std::string& project,
                                                 const PublisherConfig& config) {
  PubsubDispatcher::Publishers publishers;
  for (const RelayOptions& relay : config.tables) {
    publishers[relay.table] = transport.NewPublisher(
        {.timeout = relay.dispatch_timeout, .max_requests_in_flight = relay.max_requests});
  }
  return std::make_unique<PubsubDispatcher>(std::move(publishers),
                                            MapTopics(project, config.topics, config.any_topic));
}

absl::StatusOr<std::shared_ptr<Dispatcher>> OpenPubsubDispatcher(
    const std::map<std::string, std::string>& settings, const PublisherConfig& config) {
  pubsub::PubsubOptions options;
  RETURN_IF_ERROR(Config::Read({.flags = settings}, [&](ConfigSection& root) {
    root.Section("pubsub", [&](ConfigSection& section) { Bind(section, options); });
  }));
  RETURN_IF_ERROR(options.Validate());
  struct Connected {
    std::unique_ptr<pubsub::Transport> transport;
    std::unique_ptr<Dispatcher> dispatcher;  // ends before it
  };
  const auto connected = std::make_shared<Connected>();
  ASSIGN_OR_RETURN(connected->transport, pubsub::MakeTransport(options.transport));
  connected->dispatcher = MakePubsubDispatcher(*connected->transport, options.project, config);
  return std::shared_ptr<Dispatcher>(connected, connected->dispatcher.get());
}

}  // namespace lockstep::publisher
