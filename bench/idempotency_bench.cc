// scripts/bench idempotency (needs: postgres): requests a second that take a key and finish it,
// beside the same transactions with a bare INSERT … ON CONFLICT DO NOTHING and an UPDATE on a table
// with the same indexes. In turn, round by round; in one transaction per request, and in two.
// Beside the rates, the CPU of all that takes part and of the server's sessions alone: of a machine
// that is busy otherwise these ratios can be believed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/machine_cpu.h"
#include "idempotency/postgres_store.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

using idempotency::PostgresStore;

constexpr char kBareTable[] = R"(
DROP SCHEMA IF EXISTS bare CASCADE;
CREATE SCHEMA bare;
CREATE TABLE bare.keys (
  tenant text, key text NOT NULL, hash text NOT NULL, state text NOT NULL, digest text,
  expires_at timestamptz NOT NULL, UNIQUE NULLS NOT DISTINCT (tenant, key)) WITH (fillfactor = 80);
CREATE INDEX ON bare.keys (expires_at))";
constexpr postgres::Statement kBarePut{
    "bare_put",
    "INSERT INTO bare.keys (tenant, key, hash, state, expires_at) VALUES ($1, $2, $3, 'InFlight', "
    "now() + interval '24 hours') ON CONFLICT DO NOTHING"};
constexpr postgres::Statement kBareFinish{
    "bare_finish",
    "UPDATE bare.keys SET state = 'Succeeded', digest = $3 WHERE tenant = $1 AND key = $2"};

constexpr char kTenant[] = "acme";
constexpr char kDigest[] = R"({"charge": "ch_3MmlLrLkdIwHu7ix0snN0B15", "status": "ok"})";
const std::string kHash(64, 'a');

struct Options {
  std::string database;
  int connections = 4;
  int requests = 4'000;  // a contestant and round
  int rounds = 3;
  bool json = false;
};

void Must(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "bench: {}\n", MessageOf(status));
  std::exit(1);
}
template <typename Value>
Value Must(absl::StatusOr<Value> value) {
  Must(value.status());
  return *std::move(value);
}

// One request's two statements, on what commits them.
using Put = std::function<std::string(postgres::Executor&, const std::string& key)>;
using Finish =
    std::function<void(postgres::Executor&, const std::string& key, const std::string& token)>;
struct Contestant {
  Put put;
  Finish finish;
};

const Contestant kBare = {
    [](postgres::Executor& executor, const std::string& key) {
      Must(executor.Run(kBarePut, kTenant, key, kHash));
      return std::string();
    },
    [](postgres::Executor& executor, const std::string& key, const std::string&) {
      Must(executor.Run(kBareFinish, kTenant, key, kDigest));
    }};
const Contestant kStore = {
    [](postgres::Executor& executor, const std::string& key) {
      const auto answer =
          Must(PostgresStore(executor).CheckAndPut({.tenant = kTenant, .key = key, .hash = kHash}));
      if (answer.outcome != idempotency::Outcome::kGo) Must(absl::InternalError("not a new key"));
      return answer.token;
    },
    [](postgres::Executor& executor, const std::string& key, const std::string& token) {
      Must(PostgresStore(executor).Finish({kTenant, key, token}, kDigest));
    }};

class IdempotencyBench {
 public:
  explicit IdempotencyBench(const Options& options) : options_(options) {
    connection_ = Open();
    Must(postgres::Migrator(*connection_, "lockstep", sql::IdempotencyMigrations()).Up().status());
    Must(connection_->Run(kBareTable));
  }

  struct Cost {
    double per_s = 0;      // requests
    double cpu_us = 0;     // a request, of all that takes part
    double server_us = 0;  // of that, the server's sessions
  };
  // A table that others have filled is not measured.
  Cost Measure(const Contestant& contestant, bool one_transaction) {
    Must(connection_->Run("TRUNCATE lockstep.idempotency_keys, bare.keys"));
    Must(connection_->Run("CHECKPOINT"));
    std::barrier start(options_.connections + 1);
    std::vector<std::jthread> callers;
    const int each = options_.requests / options_.connections;
    std::atomic<double> server = 0;
    for (int i = 0; i < options_.connections; ++i) {
      callers.emplace_back([&, i] {
        const auto connection = Open();
        for (int n = -20; n < each; ++n) {  // the first are for plans and caches
          if (n == 0) {
            start.arrive_and_wait();
            server -= CpuSeconds(connection->backend_pid());
          }
          Request(*connection, contestant, fmt::format("request-{}-{}", i, n), one_transaction);
        }
        server += CpuSeconds(connection->backend_pid());
      });
    }
    const MachineCpu cpu(options_.database);
    start.arrive_and_wait();
    const auto began = std::chrono::steady_clock::now();
    callers.clear();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const double requests = each * options_.connections;
    return {.per_s = requests / took.count(),
            .cpu_us = cpu.Seconds() * 1e6 / requests,
            .server_us = server * 1e6 / requests};
  }

 private:
  std::unique_ptr<postgres::Connection> Open() {
    return Must(postgres::Connection::Open({.url = options_.database}));
  }

  static void Request(postgres::Connection& connection, const Contestant& contestant,
                      const std::string& key, bool one_transaction) {
    if (one_transaction) {
      postgres::Transaction transaction = Must(connection.Begin());
      contestant.finish(transaction, key, contestant.put(transaction, key));
      Must(transaction.Commit());
    } else {
      contestant.finish(connection, key, contestant.put(connection, key));
    }
  }

  const Options& options_;
  std::unique_ptr<postgres::Connection> connection_;
};

using Cost = IdempotencyBench::Cost;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double Median(const std::vector<Cost>& costs, double Cost::*of) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(cost.*of);
  return Median(values);
}
nlohmann::ordered_json ToJson(const std::vector<Cost>& costs) {
  return {{"per_s", static_cast<int64_t>(Median(costs, &Cost::per_s))},
          {"cpu_us", Median(costs, &Cost::cpu_us)},
          {"server_us", Median(costs, &Cost::server_us)}};
}

int Main(const Options& options) {
  IdempotencyBench bench(options);
  nlohmann::ordered_json json = {{"connections", options.connections},
                                 {"requests", options.requests},
                                 {"rounds", options.rounds}};
  for (const bool one : {true, false}) {
    std::vector<Cost> bare, store;
    std::vector<double> ratio, cpu_ratio;
    for (int i = 0; i < options.rounds; ++i) {
      bare.push_back(bench.Measure(kBare, one));
      store.push_back(bench.Measure(kStore, one));
      ratio.push_back(store.back().per_s / bare.back().per_s);
      cpu_ratio.push_back(bare.back().cpu_us / store.back().cpu_us);
    }
    const std::string way = one ? "one_transaction" : "two_transactions";
    json[way] = {{"bare", ToJson(bare)},
                 {"store", ToJson(store)},
                 {"ratio", Median(ratio)},
                 {"cpu_ratio", Median(cpu_ratio)}};
    if (options.json) continue;
    fmt::print("{}\n", one ? "one transaction" : "two transactions");
    const auto line = [](const char* who, const std::vector<Cost>& costs) {
      fmt::print("  {:<6} {:>7.0f}/s  CPU {:>6.1f} µs a request, of the server {:>6.1f}\n", who,
                 Median(costs, &Cost::per_s), Median(costs, &Cost::cpu_us),
                 Median(costs, &Cost::server_us));
    };
    line("bare", bare);
    line("store", store);
    fmt::print("  ratio  {:.2f} by rate (rounds: {:.2f}), {:.2f} by CPU (rounds: {:.2f})\n",
               Median(ratio), fmt::join(ratio, " "), Median(cpu_ratio), fmt::join(cpu_ratio, " "));
  }
  if (options.json) fmt::print("{}\n", json.dump());
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"check_and_put and finish beside a bare INSERT … ON CONFLICT and UPDATE"};
  app.add_option("--database", options.database)->envname("LOCKSTEP_TEST_PG")->required();
  app.add_option("--connections", options.connections)->capture_default_str();
  app.add_option("--requests", options.requests)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  return lockstep::bench::Main(options);
}
