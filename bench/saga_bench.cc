// scripts/bench saga (needs: postgres): what sagas cost, as shares of what they could not cost less
// than.
//   steps   sql: steps a second, beside the same function in bare transactions: as many
//   connections, one
//           transaction per step, which calls the function and marks a row as done (BEGIN, SELECT,
//           UPDATE, COMMIT, as a service writes it by hand)
//   claim   sagas leased a second, in a database that keeps a million finished sagas and in one
//   that has none;
//           and the steps a second there
//   idle    queries a second of an orchestrator that has nothing to do, while sagas wait for a
//   signal
// In turn, round by round.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/child.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "sagas/store/desk.h"
#include "sagas/store/work_store.h"
#include "sql/migrations.h"

extern char** environ;

namespace lockstep::bench {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kSteps = 4;
constexpr char kTables[] = R"(
CREATE SCHEMA bench;
CREATE TABLE bench.effect (saga text NOT NULL, step int NOT NULL, at timestamptz NOT NULL);
CREATE FUNCTION bench.step(request jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
  INSERT INTO bench.effect VALUES (request->>'saga', (request->>'step')::int, clock_timestamp());
  RETURN jsonb_build_object('done', true);
END $$;
CREATE TABLE bench.bare (saga text, step int, state text NOT NULL DEFAULT 'Ready', result jsonb,
                         completed_at timestamptz, PRIMARY KEY (saga, step)) WITH (fillfactor = 70))";
constexpr char kBareRows[] =
    "TRUNCATE bench.bare, bench.effect; INSERT INTO bench.bare (saga, step) SELECT i::text, s FROM "
    "generate_series(1, {}) i, generate_series(0, {}) s; ANALYZE bench.bare";
constexpr postgres::Statement kBareStep{"bare_step", "SELECT bench.step($1::jsonb)"};
constexpr postgres::Statement kBareMark{
    "bare_mark",
    "UPDATE bench.bare SET state = 'Succeeded', result = $3::jsonb, completed_at = "
    "clock_timestamp() WHERE saga = $1 AND step = $2 AND state = 'Ready'"};
constexpr char kStart[] =
    "SELECT count(lockstep.saga_start('{}', '{{}}')) FROM generate_series(1, {})";

// Finished ones as they stand after a while: with their steps and audit, in the order of time. The
// triggers are for changes that people and orchestrators make.
constexpr char kFinished[] = R"(
SET session_replication_role = replica;
INSERT INTO lockstep.sagas (id, definition, version, state, input, created_at, ended_at, updated_at)
  SELECT lockstep.saga_new_id(), 'steps', 1, 'Completed', '{{}}', at, at, at
    FROM (SELECT now() - interval '1 day' + i * interval '50 ms' AS at FROM generate_series(1, {0}) i) t;
INSERT INTO lockstep.saga_steps (saga, step, name, state, result, started_at, completed_at)
  SELECT id, s, 'step' || s, 'Succeeded', '{{"done": true}}', created_at, ended_at
    FROM lockstep.sagas, generate_series(0, 1) s WHERE state = 'Completed';
INSERT INTO lockstep.saga_audit (saga, actor, role, action, from_state, to_state)
  SELECT id, 'bench', 'bench', 'state', 'Running', 'Completed' FROM lockstep.sagas WHERE state = 'Completed';
SET session_replication_role = origin;
)";

struct Options {
  std::string database;
  int connections = 4;
  int sagas = 2'000;  // a contestant and round
  int claims = 50'000;
  int finished = 1'000'000;
  int rounds = 3;
  int idle_seconds = 30;
  std::string only;  // one of the parts
  bool json = false;
};

[[noreturn]] void Die(std::string_view why) {
  fmt::print(stderr, "bench: {}\n", why);
  std::exit(1);
}
void Must(const absl::Status& status) {
  if (!status.ok()) Die(MessageOf(status));
}
template <typename Value>
Value Must(absl::StatusOr<Value> value) {
  Must(value.status());
  return *std::move(value);
}
std::unique_ptr<postgres::Connection> Open(const std::string& url) {
  return Must(postgres::Connection::Open({.url = url, .statement_timeout = Millis(0)}));
}
double Seconds(Steady::duration time) { return std::chrono::duration<double>(time).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// lockstep-orchestrator, until the end of this object.
class Orchestrator {
 public:
  Orchestrator(const std::string& url, int connections, const std::string& folder) {
    const std::string config = folder + "/orchestrator.yaml";
    std::ofstream(config) << fmt::format("database: {}\nhttp: {{enabled: false}}\nworkers: {}\n",
                                         url, connections);
    const std::string log = folder + "/orchestrator.log";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
    const std::string path = ProgramFolder() + "/lockstep-orchestrator";
    const char* const arguments[] = {path.c_str(), "--config", config.c_str(), nullptr};
    if (posix_spawn(&pid_, path.c_str(), &actions, nullptr, const_cast<char* const*>(arguments),
                    environ) != 0) {
      Die("lockstep-orchestrator can't be started");
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Orchestrator() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

 private:
  pid_t pid_ = 0;
};

// A database with sagas in it: migrated, with the definitions, and so many finished.
class SagaDatabase {
 public:
  SagaDatabase(const Options& options, const std::string& name, const std::string& folder,
               int finished)
      : options_(options), folder_(folder) {
    const auto cluster = Open(options.database);
    Must(cluster->Run(fmt::format("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)));
    Must(cluster->Run("CREATE DATABASE " + name));
    url_ = options.database.substr(0, options.database.rfind('/') + 1) + name;
    session_ = Open(url_);
    Must(postgres::Migrator(*session_, "lockstep", sql::SagaMigrations()).Up().status());
    Must(session_->Run(kTables));
    sagas::Definition steps{.name = "steps"};
    for (int i = 0; i < kSteps; ++i) {
      sagas::Action action{
          .kind = sagas::ActionKind::kSql, .target = "bench.step", .idempotent = true};
      action.request = {{"saga", "$.saga.id"}, {"step", i}};
      steps.steps.push_back({.name = fmt::format("step{}", i), .action = action});
    }
    sagas::Definition waits{.name = "waits"};
    waits.steps.push_back(
        {.name = "wait",
         .action = {.kind = sagas::ActionKind::kWait, .idempotent = true, .timeout = Millis(0)}});
    for (const auto& definition : {steps, waits}) {
      Must(sagas::Register(*session_, definition, "bench").status());
    }
    if (finished > 0) {
      Must(session_->Run(fmt::format(kFinished, finished)));
      // Not within a string of several statements.
      Must(session_->Run("VACUUM ANALYZE lockstep.sagas"));
      Must(session_->Run("VACUUM ANALYZE lockstep.saga_steps"));
      Must(session_->Run("VACUUM ANALYZE lockstep.saga_audit"));
    }
  }
  ~SagaDatabase() {
    session_.reset();
    Must(Open(options_.database)
             ->Run("DROP DATABASE " + url_.substr(url_.rfind('/') + 1) + " WITH (FORCE)"));
  }

  postgres::Connection& session() { return *session_; }
  const std::string& url() const { return url_; }

  void Settle() { Must(session_->Run("CHECKPOINT")); }

  // From the commit that starts them all until the last one has ended; an orchestrator waits.
  double StepsPerSecond() {
    const Orchestrator orchestrator(url_, options_.connections, folder_);
    RunSagas(50);  // for plans and caches
    Settle();
    const double seconds = RunSagas(options_.sagas);
    return options_.sagas * kSteps / seconds;
  }

  double BareStepsPerSecond() {
    Must(session_->Run(fmt::format(kBareRows, options_.sagas, kSteps - 1)));
    Settle();
    std::barrier start(options_.connections + 1);
    std::vector<std::jthread> workers;
    std::atomic<int> next = 1;
    for (int i = 0; i < options_.connections; ++i) {
      workers.emplace_back([&] {
        const auto connection = Open(url_);
        for (int n = 0; n < 20; ++n) Bare(*connection, "none", n);  // for plans and caches
        start.arrive_and_wait();
        for (int saga; (saga = next++) <= options_.sagas;) {
          for (int step = 0; step < kSteps; ++step)
            Bare(*connection, fmt::format("{}", saga), step);
        }
      });
    }
    start.arrive_and_wait();
    const auto began = Steady::now();
    workers.clear();
    return options_.sagas * kSteps / Seconds(Steady::now() - began);
  }

  // Sagas to be leased.
  void PrepareClaims() {
    Must(session_->Run(fmt::format(kStart, "waits", options_.claims)));
    Must(session_->Run("VACUUM ANALYZE lockstep.saga_work"));
    Settle();
    claimer_ = Must(
        postgres::Connection::Open({.url = url_, .settings = "SET synchronous_commit = off;"}));
  }
  // How long it takes to lease so many more, a hundred at a time, as an orchestrator with many
  // hands asks for them.
  double ClaimSome(int count) {
    sagas::LeaseStore store(*claimer_);
    const auto began = Steady::now();
    for (int leased = 0; leased < count;) {
      const auto claimed = Must(store.Claim("bench", Millis(600'000), 100, {}));
      if (claimed.empty()) Die("nothing is left to be claimed");
      leased += static_cast<int>(claimed.size());
    }
    return Seconds(Steady::now() - began);
  }
  void EndClaims() {
    claimer_.reset();
    Forget("waits");
  }

  // Queries a second of an orchestrator that waits with its sagas.
  double IdleQueries() {
    Must(session_->Run(fmt::format(kStart, "waits", 100)));
    const Orchestrator orchestrator(url_, options_.connections, folder_);
    const char* const kBegun =
        "SELECT count(*) FROM lockstep.saga_steps WHERE name = 'wait' AND state = 'InFlight'";
    while (Must(session_->Number(kBegun)) < 100) std::this_thread::sleep_for(Millis(100));
    // A session tells of its transactions 10 s after the last one at the latest.
    std::this_thread::sleep_for(Millis(12'000));
    const int64_t before = Transactions();
    std::this_thread::sleep_for(std::chrono::seconds(options_.idle_seconds));
    const int64_t ours = 1;
    const double rate = static_cast<double>(Transactions() - before - ours) / options_.idle_seconds;
    Forget("waits");
    return rate;
  }

 private:
  static void Bare(postgres::Connection& connection, const std::string& saga, int step) {
    postgres::Transaction transaction = Must(connection.Begin());
    const auto done = Must(
        transaction.Execute(kBareStep, fmt::format(R"({{"saga": "{}", "step": {}}})", saga, step)));
    Must(transaction.Run(kBareMark, saga, step, done.Text(0, 0)));
    Must(transaction.Commit());
  }

  double RunSagas(int count) {
    Must(session_->Run(fmt::format(kStart, "steps", count)));
    const auto began = Steady::now();
    while (Must(session_->Number(
               "SELECT count(*) FROM (SELECT FROM lockstep.saga_work LIMIT 1) w")) > 0) {
      if (Seconds(Steady::now() - began) > 300) Die("the sagas don't end: see " + folder_);
      std::this_thread::sleep_for(Millis(10));
    }
    return Seconds(Steady::now() - began);
  }

  // What is still open of a definition.
  void Forget(const std::string& definition) {
    Must(
        session_->Run(fmt::format("DELETE FROM lockstep.saga_steps s USING lockstep.saga_work w "
                                  "WHERE w.saga = s.saga AND w.definition = '{0}';"
                                  "DELETE FROM lockstep.saga_audit a USING lockstep.saga_work w "
                                  "WHERE w.saga = a.saga AND w.definition = '{0}';"
                                  "DELETE FROM lockstep.sagas s USING lockstep.saga_work w WHERE "
                                  "w.saga = s.id AND w.definition = '{0}';"
                                  "DELETE FROM lockstep.saga_work WHERE definition = '{0}'",
                                  definition)));
    Must(session_->Run("VACUUM lockstep.saga_work"));
  }

  // Every statement of an idle orchestrator is a transaction of its own.
  int64_t Transactions() {
    return Must(
        session_->Number("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = "
                         "current_database()"));
  }

  const Options& options_;
  const std::string folder_;
  std::string url_;
  std::unique_ptr<postgres::Connection> session_, claimer_;
};

// Claims a second of both, some here and some there in turn: a shared machine is not the same
// from one second to the next.
std::pair<double, double> CompareClaims(SagaDatabase& one, SagaDatabase& other, int claims) {
  constexpr int kSlice = 500;
  one.PrepareClaims();
  other.PrepareClaims();
  double one_took = 0, other_took = 0;
  for (int done = 0; done < claims; done += kSlice) {
    const bool other_first = done / kSlice % 2 == 1;
    if (other_first) other_took += other.ClaimSome(kSlice);
    one_took += one.ClaimSome(kSlice);
    if (!other_first) other_took += other.ClaimSome(kSlice);
  }
  one.EndClaims();
  other.EndClaims();
  return {claims / one_took, claims / other_took};
}

struct Contest {
  std::vector<double> ours, bound, ratio;
  void Add(double one, double other) {
    ours.push_back(one);
    bound.push_back(other);
    ratio.push_back(one / other);
  }
  nlohmann::ordered_json ToJson(const char* of_ours, const char* of_bound) const {
    return {{of_ours, static_cast<int64_t>(Median(ours))},
            {of_bound, static_cast<int64_t>(Median(bound))},
            {"ratio", Median(ratio)}};
  }
  void Print(const char* what, const char* of_ours, const char* of_bound) const {
    fmt::print("{:<20} {} {:>7.0f}/s  {} {:>7.0f}/s  ratio {:.2f}  (rounds: {:.2f})\n", what,
               of_ours, Median(ours), of_bound, Median(bound), Median(ratio),
               fmt::join(ratio, " "));
    std::fflush(stdout);
  }
};

int Main(const Options& options) {
  const auto wanted = [&](const char* part) {
    return options.only.empty() || options.only == part;
  };
  std::string folder = (std::filesystem::temp_directory_path() / "saga-bench.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) Die("no folder can be made");
  nlohmann::ordered_json json = {{"connections", options.connections},
                                 {"sagas", options.sagas},
                                 {"finished", options.finished},
                                 {"rounds", options.rounds}};
  if (wanted("steps") || wanted("idle")) {
    SagaDatabase database(options, "saga_bench_empty", folder, 0);
    if (wanted("steps")) {
      Contest steps;
      for (int i = 0; i < options.rounds; ++i) {
        const double bare = database.BareStepsPerSecond();
        steps.Add(database.StepsPerSecond(), bare);
      }
      json["steps"] = steps.ToJson("sql_steps_per_s", "bare_per_s");
      if (!options.json) steps.Print("sql: steps", "sagas", "bare");
    }
    if (wanted("idle")) {
      const double idle = database.IdleQueries();
      json["idle_queries_per_s"] = idle;
      if (!options.json) fmt::print("{:<20} {:.2f} queries/s\n", "idle", idle);
    }
  }
  if (wanted("claim") || wanted("finished")) {
    SagaDatabase none(options, "saga_bench_none", folder, 0);
    SagaDatabase many(options, "saga_bench_many", folder, options.finished);
    Contest claims, steps;
    for (int i = 0; i < options.rounds; ++i) {
      if (wanted("claim")) {
        const auto [with, without] = CompareClaims(many, none, options.claims);
        claims.Add(with, without);
      }
      if (wanted("finished")) steps.Add(many.StepsPerSecond(), none.StepsPerSecond());
    }
    for (const auto& [name, contest] :
         {std::pair("claims", &claims), {"steps_with_finished", &steps}}) {
      if (contest->ratio.empty()) continue;
      json[name] = contest->ToJson("with_finished_per_s", "without_per_s");
      if (!options.json) contest->Print(name, "with finished", "without");
    }
  }
  if (options.json) fmt::print("{}\n", json.dump());
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"Sagas beside bare transactions; with and without finished ones; at rest"};
  app.add_option("--database", options.database)->envname("LOCKSTEP_TEST_PG")->required();
  app.add_option("--connections", options.connections)->capture_default_str();
  app.add_option("--sagas", options.sagas, "a round")->capture_default_str();
  app.add_option("--claims", options.claims, "a round")->capture_default_str();
  app.add_option("--finished", options.finished, "sagas that have ended and are kept")
      ->capture_default_str();
  app.add_option("--idle-seconds", options.idle_seconds)->capture_default_str();
  app.add_option("--only", options.only,
                 "one part: steps, idle, claim, finished (steps beside finished ones)")
      ->check(CLI::IsMember({"steps", "idle", "claim", "finished"}));
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  return lockstep::bench::Main(options);
}
