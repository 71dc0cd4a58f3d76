// Three runners, killed and started again, on a database that is restarted, behind a bus that loses
// acks, delivers twice and breaks streams. In the end the read model must equal a model that was
// computed from the events alone. Run by runner_chaos_test.sh, which brings the database.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "emulator/service/server.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "pubsub/transport.h"
#include "sql/migrations.h"

extern char** environ;

namespace lockstep {
namespace {

constexpr char kTopic[] = "projects/chaos/topics/chaos.events";
constexpr char kSubscription[] = "projects/chaos/subscriptions/chaos.events.feed";
constexpr int kBuckets = 64;

constexpr char kTables[] = R"(
CREATE SCHEMA chaos;
CREATE TABLE chaos.item (id text PRIMARY KEY, a text, b text, version bigint NOT NULL);
CREATE TABLE chaos.total (bucket text PRIMARY KEY, n bigint NOT NULL DEFAULT 0,
                          amount bigint NOT NULL DEFAULT 0);)";

constexpr char kProjection[] = R"(group: feed
subscription: chaos.events.feed
projections:
  - name: items
    table: chaos.item
    key: id
    version: version
    events:
      Set: {replace: [a, b]}
      Patch: {merge: [a, b]}
  - name: totals
    table: chaos.total
    key: bucket
    events:
      Set: {increment: {n: {value: 1}, amount: amount}}
      Patch: {increment: {n: {value: 1}, amount: amount}}
)";

struct Options {
  std::string database, restart, runner, folder;
  int events = 20'000;
  int keys = 1'000;
  int runners = 3;
  int seed = 1;
  int patience = 300;  // seconds
};

struct Row {
  int64_t version = 0;
  std::string a, b;
  friend bool operator==(const Row&, const Row&) = default;
};
struct Total {
  int64_t n = 0, amount = 0;
  friend bool operator==(const Total&, const Total&) = default;
};
struct Model {
  std::map<std::string, Row> rows;
  std::map<std::string, Total> totals;
  int64_t events = 0;
  friend bool operator==(const Model&, const Model&) = default;
};

// Makes the events and, beside them, the model: two plain loops that share nothing with Lockstep.
class Source {
 public:
  explicit Source(const Options& options) : options_(options), random_(options.seed) {}

  // The next event; a tenth comes twice.
  std::vector<pubsub::Message> Next() {
    const std::string id = fmt::format("k{}", random_() % options_.keys);
    Row& row = model_.rows[id];
    const bool set = row.version == 0 || random_() % 4 == 0;
    const std::string value = fmt::format("{:x}", random_());
    const int amount = static_cast<int>(random_() % 100);
    const std::string bucket = fmt::format("b{}", random_() % kBuckets);
    nlohmann::json payload = {{"id", id}, {"bucket", bucket}, {"amount", amount}};
    ++row.version;
    if (set || random_() % 2 == 0) payload["a"] = row.a = value;
    if (set || !payload.contains("a")) payload["b"] = row.b = value + "b";
    ++model_.totals[bucket].n;
    model_.totals[bucket].amount += amount;
    ++model_.events;
    pubsub::Message message{.data = payload.dump(), .ordering_key = id};
    message.attributes = {
        {"event_id",
         fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", random_() & 0xffffffff,
                     random_() & 0xffff, random_() & 0xfff, random_() & 0xfff, model_.events)},
        {"event_type", set ? "Set" : "Patch"},
        {"aggregate_type", "item"},
        {"aggregate_id", id},
        {"version", fmt::format("{}", row.version)},
        {"schema_version", "1"},
        {"occurred_at", FormatTimestamp(Clock::System().Now())},
        {"content_type", "application/json"},
        {"topic", "chaos.item.changed.v1"},
        {"sequence", fmt::format("{}", model_.events)}};
    if (random_() % 10 == 0) return {message, message};
    return {std::move(message)};
  }
  const Model& model() const { return model_; }

 private:
  const Options& options_;
  std::mt19937_64 random_;
  Model model_;
};

[[noreturn]] void Die(std::string_view what, const absl::Status& status) {
  fmt::print(stderr, "chaos: {}: {}\n", what, MessageOf(status));
  std::exit(1);
}

class RunnerProcess {
 public:
  RunnerProcess(const Options& options, int number)
      : program_(options.runner),
        config_(options.folder + "/runner.yaml"),
        log_(fmt::format("{}/runner{}.log", options.folder, number)) {
    Start();
  }
  ~RunnerProcess() { End(SIGTERM); }

  void Start() {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
    const char* const arguments[] = {program_.c_str(), "--config", config_.c_str(), nullptr};
    if (posix_spawn(&pid_, program_.c_str(), &actions, nullptr, const_cast<char* const*>(arguments),
                    environ) != 0) {
      Die("the runner did not start", absl::NotFoundError(program_));
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  void End(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
  }

 private:
  const std::string program_, config_, log_;
  pid_t pid_ = 0;
};

// What was done to the runners and the database so far.
struct FaultCounts {
  std::atomic<int> kills{0};
  std::atomic<int> restarts{0};
};

// The second third comes after a kill, the last one after a restart of the database: however fast
// the runners are, events flow before and after both.
void AwaitFaults(const Options& options, const FaultCounts& faults, int made) {
  const bool kill = made >= options.events / 3;
  const bool restart = made >= options.events / 3 * 2 && !options.restart.empty();
  while ((kill && faults.kills == 0) || (restart && faults.restarts == 0)) {
    std::this_thread::sleep_for(Millis(20));
  }
}

void Publish(pubsub::Publisher& publisher, Source& source, const Options& options,
             const FaultCounts& faults) {
  const int events = options.events;
  std::mutex mu;
  std::condition_variable changed;
  int64_t under_way = 0;
  for (int made = 0; made < events;) {
    AwaitFaults(options, faults, made);
    std::vector<pubsub::Message> batch;
    for (; made < events && batch.size() < 500; ++made) {
      for (pubsub::Message& message : source.Next()) batch.push_back(std::move(message));
    }
    std::unique_lock lock(mu);  // calls share keys: one at a time
    changed.wait(lock, [&] { return under_way == 0; });
    ++under_way;
    lock.unlock();
    publisher.Publish(kTopic, std::move(batch), [&](const auto& results) {
      for (const auto& result : results) {
        if (!result.ok()) Die("publishing failed", result.status());
      }
      std::scoped_lock held(mu);
      --under_way;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return under_way == 0; });
}

Model ReadBack(postgres::Connection& connection) {
  Model model;
  const auto rows = connection.Execute("SELECT id, version, a, b FROM chaos.item");
  const auto totals = connection.Execute("SELECT bucket, n, amount FROM chaos.total");
  const auto events = connection.Execute("SELECT count(*) FROM feed_state.inbox");
  if (!rows.ok()) Die("reading the model", rows.status());
  for (int i = 0; i < rows->rows(); ++i) {
    model.rows[std::string(rows->Text(i, 0))] = {rows->Int(i, 1), std::string(rows->Text(i, 2)),
                                                 std::string(rows->Text(i, 3))};
  }
  for (int i = 0; i < totals->rows(); ++i) {
    model.totals[std::string(totals->Text(i, 0))] = {totals->Int(i, 1), totals->Int(i, 2)};
  }
  model.events = events->Int(0, 0);
  return model;
}

int64_t Seen(const Options& options) {
  const auto connection = postgres::Connection::Open({.url = options.database});
  if (!connection.ok()) return -1;
  const auto count = (*connection)->Execute("SELECT count(*) FROM feed_state.inbox");
  return count.ok() ? count->Int(0, 0) : -1;
}

// Kills a runner or restarts the database, again and again, until everything has been seen.
bool InjectFaults(const Options& options, int64_t events, FaultCounts& faults,
                  std::vector<std::unique_ptr<RunnerProcess>>& runners) {
  std::mt19937 random(options.seed);
  const auto deadline = Clock::System().Steady() + std::chrono::seconds(options.patience);
  for (int round = 1; Clock::System().Steady() < deadline; ++round) {
    // Not a wait for something: it paces the faults.
    std::this_thread::sleep_for(Millis(300 + random() % 900));
    const int64_t seen = Seen(options);
    if (seen >= events) return true;
    fmt::print(stderr, "chaos: {} of {} events, {} kills, {} restarts\n", seen, events,
               faults.kills.load(), faults.restarts.load());
    if (round % 4 == 0 && !options.restart.empty()) {
      if (std::system(options.restart.c_str()) != 0) Die("restart", absl::UnknownError("failed"));
      ++faults.restarts;
    } else {
      RunnerProcess& victim = *runners[random() % runners.size()];
      victim.End(random() % 3 == 0 ? SIGTERM : SIGKILL);
      victim.Start();
      ++faults.kills;
    }
  }
  return false;
}

int Run(const Options& options) {
  emulator::Server bus({.faults = {.drop_acks = 0.01, .close_streams = 0.002, .duplicate = 0.02}});
  if (const auto started = bus.Start(); !started.ok()) Die("the emulator", started);
  const auto transport = *pubsub::MakeTransport({.emulator_host = bus.address()});
  const auto topic = transport->admin().CreateTopic({.name = kTopic});
  if (!topic.ok()) Die("the topic", topic.status());
  const auto subscription = transport->admin().CreateSubscription(
      {.name = kSubscription, .topic = kTopic, .ordering = true});
  if (!subscription.ok()) Die("the subscription", subscription.status());
  {
    auto connection = postgres::Connection::Open({.url = options.database});
    if (!connection.ok()) Die("the database", connection.status());
    const auto migrated =
        postgres::Migrator(**connection, "feed_state", sql::StateMigrations()).Up();
    if (!migrated.ok()) Die("migrations", migrated.status());
    if (const auto made = (*connection)->Run(kTables); !made.ok()) Die("tables", made);
  }
  std::ofstream(options.folder + "/feed.yaml") << kProjection;
  std::ofstream(options.folder + "/runner.yaml") << fmt::format(
      "database: {}\nstate_schema: feed_state\npubsub:\n  project: chaos\n  emulator_host: {}\n"
      "http:\n  enabled: false\ngroups:\n  - file: feed.yaml\n    ack_deadline: 10s\n"
      "    max_outstanding_messages: 4000\n",
      options.database, bus.address());

  Source source(options);
  std::vector<std::unique_ptr<RunnerProcess>> runners;
  for (int i = 0; i < options.runners; ++i) {
    runners.push_back(std::make_unique<RunnerProcess>(options, i));
  }
  const auto publisher = transport->NewPublisher({});
  FaultCounts faults;
  std::thread publishing([&] { Publish(*publisher, source, options, faults); });
  const bool seen = InjectFaults(options, options.events, faults, runners);
  publishing.join();
  runners.clear();

  auto connection = postgres::Connection::Open({.url = options.database});
  if (!connection.ok()) Die("the database", connection.status());
  const Model model = ReadBack(**connection);
  const auto left =
      (*connection)
          ->Execute(
              "SELECT (SELECT count(*) FROM feed_state.dead_letters), (SELECT count(*) FROM "
              "feed_state.parked)");
  const bool equal = model == source.model();
  fmt::print("chaos: {} events, {} rows, {} kills, {} restarts; dead {}, parked {}; {}\n",
             model.events, model.rows.size(), faults.kills.load(), faults.restarts.load(),
             left->Int(0, 0), left->Int(0, 1),
             !seen   ? "NOT ALL WERE SEEN"
             : equal ? "the read model equals the events"
                     : "THE READ MODEL DIFFERS");
  return seen && equal && left->Int(0, 0) == 0 && left->Int(0, 1) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Options options;
  CLI::App app{"Three runners under attack; see the comment at the top of its source"};
  app.add_option("--database", options.database)->required();
  app.add_option("--runner", options.runner, "the lockstep-runner to start")->required();
  app.add_option("--folder", options.folder, "for configuration and logs")->required();
  app.add_option("--restart", options.restart, "a command that restarts the database");
  app.add_option("--events", options.events)->capture_default_str();
  app.add_option("--keys", options.keys)->capture_default_str();
  app.add_option("--runners", options.runners)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--patience", options.patience, "seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  return lockstep::Run(options);
}
