#include "tests/chaos/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "tests/chaos/system/ledger.h"
#include "tests/chaos/system/tables.h"
#include "tests/support/free_port.h"

namespace lockstep::chaos {
namespace {

constexpr char kProject[] = "chaos";

std::unique_ptr<postgres::Connection> Connect(const std::string& url) {
  for (int tries = 0;; ++tries) {
    auto connection = postgres::Connection::Open({.url = url, .application_name = "chaos"});
    if (connection.ok()) return *std::move(connection);
    if (tries == 200) throw std::runtime_error(std::string(MessageOf(connection.status())));
    std::this_thread::sleep_for(Millis(100));
  }
}

void Script(postgres::Connection& connection, const std::string& sql) {
  if (const auto done = connection.Run(sql); !done.ok()) {
    throw std::runtime_error(std::string(MessageOf(done)));
  }
}

// Leases, deadlines and waits are short, so that a minute of chaos holds many of each.
constexpr char kPublisherYaml[] = R"(database: postgresql://lockstep@127.0.0.1:{}/shop
pubsub: {{project: chaos, emulator_host: "127.0.0.1:{}", force_emulator: true}}
http: {{enabled: false}}
relay:
  single_active: false
  shards: 4
  batch_size: 50
  lock_ttl: 3s
  dispatch_timeout: 2s
  poll_interval: 1s
  ping_interval: 500ms
  session_timeout: 3s
  watchdog: 6s
  max_attempts: 2
  retry: {{base: 200ms, cap: 2s}}
  tables: [shop.outbox]
backfill: {{lease: 4s}}
topics: {{chaos.item.changed.v1: chaos.events}}
)";
constexpr char kRunnerYaml[] = R"(database: postgresql://lockstep@127.0.0.1:{}/feed
state_schema: feed_state
pubsub: {{project: chaos, emulator_host: "127.0.0.1:{}", force_emulator: true}}
http: {{enabled: false}}
groups:
)";
// Tries are few and statements short, so that who blames events for what befalls them is found out.
// Checkpoints are seldom: one that falls between a standby's last word and its promotion tells of
// the loss by itself, and hides that nobody else noticed it.
constexpr char kGroupYaml[] = R"(  - file: {}.yaml
    lanes: 2
    ack_deadline: 10s
    ack_fence: 3s
    seek_takeover: 10s
    statement_timeout: 1s
    transient_tries: 2
    max_attempts: {}
    max_batch: 50
    checkpoints: true
    checkpoint_every: 20s
    checkpoint_keep: 2m
    dead_letter_budget: 0
    on_gap: {}
    on_poison: {}
    baseline: {}
    inbox: {}
)";
// The runners compare by themselves, too.
constexpr char kVerifyYaml[] =
    "    verify: {{every: 20s, grace: {}, deep: true, backfills: [items-0.yaml], source: {}}}\n";
constexpr char kEmulatorYaml[] = R"(fault-drop-acks: 0.02
fault-delay-acks: 0.02
fault-ack-delay: 1s
fault-duplicate: 0.02
fault-close-streams: 0.005
)";
constexpr char kProvisionYaml[] =
    R"(pubsub: {{project: chaos, emulator_host: "127.0.0.1:{}", force_emulator: true}}
topics:
  - name: chaos.events
    retention: 7d
subscriptions:
)";

}  // namespace

const std::vector<GroupUnderTest>& Groups() {
  static const std::vector<GroupUnderTest> groups = {{"feed", true},
                                                     {"steady", true},
                                                     {"latest", false},
                                                     {World::kCalled, true, true},
                                                     {World::kVersions, true, false, true}};
  return groups;
}

World::World(WorldOptions options)
    : options_(std::move(options)),
      source_server_(options_.folder + "/source", options_.bin + "/libchaos_bad_machine.so"),
      feed_servers_(options_.folder + "/feed", options_.bin + "/libchaos_bad_machine.so") {
  source_server_.Make();
  source_server_.Start();
  StartEmulator();
  publisher_database_ = std::make_unique<Gate>(source_server_.port());
  runner_database_ = std::make_unique<Gate>(feed_servers_.primary().port());
  operator_database_ = std::make_unique<Gate>(feed_servers_.primary().port());
  feed_servers_.OnFailover([this](int port) {
    for (Gate* gate : {runner_database_.get(), operator_database_.get()}) {
      gate->Retarget(port);
      gate->Reset();
    }
  });
  publisher_bus_ = std::make_unique<Gate>(bus_port_);
  runner_bus_ = std::make_unique<Gate>(bus_port_);
  consumer_port_ = testing::FreePort();
  WriteConfigurations();
  MakeDatabases();
  StartConsumer();
  feed_servers_.Follow();
  Provision();
  publishers_ = std::make_unique<Fleet>(
      "publisher", Program("lockstep-publisher", {"--config", File("publisher.yaml")}));
  runners_ = std::make_unique<Fleet>("runner",
                                     Program("lockstep-runner", {"--config", File("runner.yaml")}));
}

Child::Command World::Program(const std::string& name, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), options_.bin + "/" + name);
  return {.arguments = std::move(arguments), .log = File(name)};
}

void World::MustRun(const std::string& name, std::vector<std::string> arguments) const {
  Child::Command command = Program(name, std::move(arguments));
  command.log = File("setup.log");
  // More than once: Pub/Sub refuses calls by chance.
  for (int tries = 0; tries < 5; ++tries) {
    if (RunToEnd(command, Millis(60'000)) == 0) return;
  }
  throw std::runtime_error(name + " failed: see " + command.log);
}

void World::WriteFile(const std::string& name, const std::string& text) const {
  std::ofstream(File(name)) << text;
}

void World::StartEmulator() {
  WriteFaults("");
  Child::Command command =
      Program("lockstep-emulator",
              {"--port", "0", "--fault-seed", fmt::format("{}", options_.seed % 1'000'000),
               "--fault-clock-swing", fmt::format("{}ms", kClockSwing.count()), "--config",
               File("emulator.yaml")});
  command.log = File("emulator.log");
  emulator_ = std::make_unique<Child>(command);
  for (int tries = 0; tries < 300 && bus_port_ == 0; ++tries) {
    std::this_thread::sleep_for(Millis(100));
    std::ifstream log(command.log);
    for (std::string line; std::getline(log, line);) {
      if (line.starts_with("listening on "))
        bus_port_ = std::stoi(line.substr(line.rfind(':') + 1));
    }
  }
  if (bus_port_ == 0) throw std::runtime_error("the emulator did not start: see " + command.log);
  auto transport = pubsub::MakeTransport({.emulator_host = fmt::format("127.0.0.1:{}", bus_port_)});
  if (!transport.ok()) throw std::runtime_error(std::string(MessageOf(transport.status())));
  transport_ = *std::move(transport);
}

void World::StartConsumer() {
  SetMood("well");
  Child::Command command =
      Program("lockstep-chaos-consumer",
              {"--port", fmt::format("{}", consumer_port_), "--database", feed_url(), "--group",
               kCalled, "--mood", File("consumer.mood"), "--notes", File(kCalls), "--seed",
               fmt::format("{}", options_.seed)});
  command.log = File("consumer.log");
  consumer_ = std::make_unique<Child>(command);
}

void World::SetMood(const std::string& mood) const {
  WriteFile("consumer.mood.next", mood + "\n");
  std::filesystem::rename(File("consumer.mood.next"), File("consumer.mood"));
}

void World::WriteFaults(const std::string& refuse_publish) const {
  std::string refusals = "fault-refuse: 0.005\n";
  if (!refuse_publish.empty()) {
    refusals =
        "fault-refuse: 1\nfault-refuse-method: Publish\nfault-refuse-status: " + refuse_publish +
        "\n";
  }
  WriteFile("emulator.yaml", kEmulatorYaml + refusals);
}

void World::RefusePublish(const std::string& code) {
  WriteFaults(code);
  emulator_->Signal(SIGHUP);
}

void World::WriteConfigurations() {
  WriteFile("publisher.yaml",
            fmt::format(kPublisherYaml, publisher_database_->port(), publisher_bus_->port()));
  std::string groups;
  std::string provision = fmt::format(kProvisionYaml, bus_port_);
  for (const auto& [name, ordered, called, by_versions] : Groups()) {
    WriteFile(name + ".yaml", fmt::format(fmt::runtime(by_versions ? kVersionsProjection
                                                       : ordered   ? kOrderedProjection
                                                                   : kLatestProjection),
                                          name) +
                                  (by_versions ? "" : fmt::format(kTotals, name)) +
                                  (called ? fmt::format(kHandler, consumer_port_) : ""));
    // An event that fails again and again while others of the handler are accepted is blamed in the
    // end: the consumer's moods change more often than its tries.
    groups += fmt::format(kGroupYaml, name, called ? 20 : 3, ordered ? "park" : "apply",
                          ordered ? "park" : "skip", ordered ? "snapshot" : "first_seen",
                          by_versions ? "aggregate" : "event");
    if (std::ranges::find(kInspected, name) != std::end(kInspected)) {
      groups += fmt::format(kVerifyYaml, kGrace, source_url());
    }
    provision += fmt::format(
        "  - {{name: chaos.events.{}, topic: chaos.events, ordering: {}, retain_acked: true}}\n",
        name, ordered);
  }
  provision += "  - {name: chaos.events.witness, topic: chaos.events}\n";
  WriteFile("runner.yaml",
            fmt::format(kRunnerYaml, runner_database_->port(), runner_bus_->port()) + groups);
  // The operator's, past the gates that are attacked.
  WriteFile("operator.yaml",
            fmt::format(kRunnerYaml, operator_database_->port(), bus_port_) + groups);
  WriteFile("pubsub.yaml", provision);
  WriteDeclaration(0);
}

std::string World::WriteDeclaration(int number) const {
  const std::string name = fmt::format("items-{}.yaml", number);
  WriteFile(name, fmt::format(kDeclaration, kBackfill, kOutbox, kTopic, number));
  return File(name);
}

void World::MakeDatabases() {
  for (const char* name : {"shop", "feed"}) {
    Script(*Connect(ServerOf(name).Url("postgres")), fmt::format("CREATE DATABASE {}", name));
  }
  MustRun("lockstepctl", {"--database", source_url(), "migrate", "up", "--set", "outbox"});
  MustRun("lockstepctl",
          {"--database", feed_url(), "migrate", "up", "--set", "state", "--schema", "feed_state"});
  const auto source = Connect(source_url());
  Script(*source, fmt::format("SELECT lockstep.create_outbox('{}', 4)", kOutbox));
  Script(*source, kSourceTables);
  for (const auto& [key, row] : RowsBefore()) {
    Script(*source, fmt::format("INSERT INTO shop.items VALUES ('{}', {}, '{}', '{}')", key,
                                row.version, *row.a, *row.b));
  }
  const auto feed = Connect(feed_url());
  Script(*feed, kFeedTables);
  for (const auto& [name, ordered, called, by_versions] : Groups()) {
    Script(*feed, fmt::format(kReadModel, name,
                              by_versions ? ", amount bigint"
                              : ordered   ? ""
                                          : ", deleted_at timestamptz"));
  }
}

void World::Provision() {
  MustRun("lockstepctl", {"--config", File("pubsub.yaml"), "provision", "--yes"});
}

std::unique_ptr<Child> World::Control(std::vector<std::string> arguments,
                                      const Files& files) const {
  Child::Command command = Program("lockstepctl", std::move(arguments));
  command.log = File(files.log);
  if (!files.output.empty()) command.output = File(files.output);
  return std::make_unique<Child>(command);
}

std::unique_ptr<Child> World::BeginReset(const std::string& group,
                                         std::vector<std::string> target) const {
  std::vector<std::string> arguments = {"--config", File("operator.yaml"), "offsets", "reset",
                                        group};
  arguments.insert(arguments.end(), target.begin(), target.end());
  arguments.insert(arguments.end(), {"--reason", "chaos", "--yes"});
  return Control(std::move(arguments), {.log = "resets.log"});
}

std::unique_ptr<Child> World::BeginVerify(const std::string& group,
                                          std::vector<std::string> arguments,
                                          const Files& files) const {
  arguments.insert(arguments.begin(),
                   {"--config", File("operator.yaml"), "verify", "--declaration",
                    File("items-0.yaml"), "--source", source_url(), "--group", group, "--deep"});
  return Control(std::move(arguments), files);
}

std::string World::feed_url() const {
  return fmt::format("postgresql://lockstep@127.0.0.1:{}/feed", operator_database_->port());
}

bool World::ReadyForFailover() {
  Cluster* const standby = feed_servers_.standby();
  if (standby == nullptr) return false;
  const auto connection = postgres::Connection::Open({.url = standby->Url("feed"),
                                                      .application_name = "chaos",
                                                      .connect_timeout = Millis(1'000),
                                                      .statement_timeout = Millis(1'000)});
  if (!connection.ok()) return false;
  const auto known =
      (*connection)
          ->Execute(
              "SELECT count(DISTINCT group_name), "
              "(SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming') "
              "FROM feed_state.checkpoints");
  return known.ok() && known->Int(0, 0) == static_cast<int64_t>(Groups().size()) &&
         known->Int(0, 1) == 1;
}

void World::Tick() {
  source_server_.Tick();
  feed_servers_.Tick();
  publishers_->Tick();
  runners_->Tick();
}

void World::Calm() {
  for (Cluster* server : {&source_server_, &feed_servers_.primary()}) {
    server->DiskFull(false);
    server->SlowFsync(false);
    server->Resume();
    server->SetClock(std::chrono::seconds(0));
  }
  for (Gate* gate : {publisher_database_.get(), runner_database_.get(), publisher_bus_.get(),
                     runner_bus_.get()}) {
    gate->Flow();
  }
  emulator_->Signal(SIGCONT);
  consumer_->Signal(SIGCONT);
  SetMood("well");
  publishers_->Calm();
  runners_->Calm();
}

std::vector<Witnessed> World::ReadWitness(size_t events) {
  return chaos::ReadWitness(*transport_, "projects/chaos/subscriptions/chaos.events.witness",
                            events);
}

std::set<std::string> World::Inventory() {
  std::set<std::string> found;
  for (const std::string& url : {source_url(), feed_url()}) {
    const auto tables = Connect(url)->Execute(
        "SELECT current_database() || '.' || relnamespace::regnamespace || '.' || relname "
        "FROM pg_class WHERE relkind IN ('r', 'v', 'S', 'm') "
        "AND relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', "
        "'pg_toast')");
    if (!tables.ok()) throw std::runtime_error(std::string(MessageOf(tables.status())));
    for (int i = 0; i < tables->rows(); ++i) found.emplace(tables->Text(i, 0));
  }
  for (int tries = 0;; ++tries) {
    const auto subscriptions = admin().ListSubscriptions(kProject);
    const auto snapshots = admin().ListSnapshots(kProject);
    const auto topics = admin().ListTopics(kProject);
    if (!(subscriptions.ok() && snapshots.ok() && topics.ok())) {
      if (tries == 20) throw std::runtime_error("Pub/Sub can't be listed");
      continue;  // refused by chance
    }
    for (const auto& each : *subscriptions) found.insert(each.name);
    for (const auto& each : *snapshots) {
      // Checkpoints come and go while the runners are up.
      if (each.name.find(".cp-") == std::string::npos) found.insert(each.name);
    }
    for (const auto& each : *topics) found.insert(each.name);
    return found;
  }
}

}  // namespace lockstep::chaos
