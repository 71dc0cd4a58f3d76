// What an outbox costs its source: server CPU and WAL per event, by stage, beside a bare table with
// the same unique indexes and beside the outbox as it was (landed_outbox.sql). All in one run, in
// turn; the medians of the rounds. needs: postgres
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/landed_claim.h"
#include "platform/log/log.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "publisher/outbox/outbox_store.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

using postgres::Array;
using postgres::Params;

struct Options {
  int rounds = 5;
  int rows = 6'000;
  int singles = 1'500;
  int keys = 2'000;
  int payload = 300;
  int batch = 500;
  std::string landed = "bench/landed_outbox.sql";
  bool json = false;
};

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

constexpr char kCreateBare[] = R"sql(
CREATE SCHEMA IF NOT EXISTS bare;
CREATE TABLE bare.events (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL UNIQUE, tenant_id text,
  topic text NOT NULL, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
  version bigint NOT NULL, schema_version int NOT NULL DEFAULT 1, payload bytea NOT NULL,
  content_type text NOT NULL DEFAULT 'application/protobuf', attributes jsonb NOT NULL DEFAULT '{}', traceparent text,
  tracestate text, occurred_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now(),
  target_space text, payload_sha bytea GENERATED ALWAYS AS (CASE WHEN target_space IS NOT NULL THEN sha256(payload) END) STORED,
  UNIQUE NULLS NOT DISTINCT (aggregate_id, version, aggregate_type, tenant_id)))sql";

struct Cost {
  double cpu_us = 0;
  double wal_bytes = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// What one server process has used. It is read while the process waits for its client: then it is
// exact.
class Meter {
 public:
  Meter(postgres::Connection& watched, postgres::Connection& other)
      : other_(other), pid_(Must(watched.Number("SELECT pg_backend_pid()"))) {
    cpu_ = Cpu();
    wal_ = Wal();
  }
  Cost Per(int64_t events) const {
    return {(Cpu() - cpu_) / static_cast<double>(events),
            static_cast<double>(Wal() - wal_) / static_cast<double>(events)};
  }

 private:
  double Cpu() const {
    usleep(2'000);  // until the process has gone to sleep
    std::ifstream file(fmt::format("/proc/{}/schedstat", pid_));
    double nanoseconds = 0;
    file >> nanoseconds;
    return nanoseconds / 1000;
  }
  int64_t Wal() const {
    return Must(other_.Number("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"));
  }

  postgres::Connection& other_;
  int64_t pid_;
  double cpu_ = 0;
  int64_t wal_ = 0;
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    const char* url = std::getenv("LOCKSTEP_TEST_PG");
    if (url == nullptr) throw std::runtime_error("run it with scripts/bench outbox");
    url_ = url;
    control_ = Open();
    Must(postgres::Migrator(*control_, "lockstep", sql::OutboxMigrations()).Up());
    std::ifstream file(options_.landed);
    std::stringstream landed;
    landed << file.rdbuf();
    if (landed.str().empty()) throw std::runtime_error("cannot read " + options_.landed);
    Must(control_->Run(landed.str()));
    payload_.assign(static_cast<size_t>(options_.payload), 'x');
    for (size_t i = 0; i < payload_.size(); ++i) {
      payload_[i] = static_cast<char>('a' + (i * 7919) % 26);
    }
  }

  nlohmann::ordered_json Run() {
    for (round_ = 0; round_ <= options_.rounds; ++round_) Round();  // the first one warms up
    return Report();
  }

 private:
  std::unique_ptr<postgres::Connection> Open(const std::string& settings = "") {
    return Must(postgres::Connection::Open(
        {.url = url_, .statement_timeout = Millis(0), .settings = settings}));
  }

  void Note(const std::string& what, const Cost& cost) {
    if (round_ == 0) return;
    cpu_[what].push_back(cost.cpu_us);
    wal_[what].push_back(cost.wal_bytes);
  }

  // One session for all that a writer does; the tables are new in each round.
  void Round() {
    Must(control_->Run("DROP TABLE IF EXISTS bare.events"));
    Must(control_->Run(kCreateBare));
    Must(
        control_->Run("DELETE FROM landed.outboxes; DROP TABLE IF EXISTS old.outbox; SELECT "
                      "landed.create_outbox('old.outbox')"));
    Must(
        control_->Run("SELECT lockstep.drop_outbox(outbox, true) FROM lockstep.outboxes; SELECT "
                      "lockstep.create_outbox('new.outbox')"));
    Must(control_->Run(
        "ALTER TABLE bare.events SET (autovacuum_enabled = off); ALTER TABLE old.outbox SET "
        "(autovacuum_enabled = off); ALTER TABLE new.outbox SET (autovacuum_enabled = off); ALTER "
        "TABLE new.outbox_pending SET (autovacuum_enabled = off); ALTER TABLE "
        "new.outbox_published SET (autovacuum_enabled = off)"));
    version_ = 0;
    for (const char* table : {"bare.events", "old.outbox", "new.outbox"}) {
      Note(fmt::format("insert 1: {}", table), Insert(table, 1, options_.singles));
    }
    Note("enqueue: old.outbox", Enqueue("landed", "old.outbox", options_.singles));
    Note("enqueue: new.outbox", Enqueue("lockstep", "new.outbox", options_.singles));
    for (const char* table : {"bare.events", "old.outbox", "new.outbox"}) {
      Note(fmt::format("insert 100: {}", table), Insert(table, 100, options_.rows / 100));
    }
    Note("enqueue_many 100: new.outbox", EnqueueMany(options_.rows / 100));
    for (const char* table : {"old.outbox", "new.outbox", "new.outbox_pending"}) {
      Must(control_->Run(fmt::format("VACUUM ANALYZE {}", table)));
    }
    Relay("old.outbox", false);
    Relay("new.outbox", true);
  }

  static constexpr char kColumns[] =
      "(event_id, topic, aggregate_type, aggregate_id, event_type, version, payload)";

  std::string NextKey() { return fmt::format("key-{}", (++version_ * 7919) % options_.keys); }

  Cost Insert(const std::string& table, int rows, int statements) {
    const auto writer = Open();
    std::string sql = fmt::format("INSERT INTO {} {} VALUES ", table, kColumns);
    for (int row = 0; row < rows; ++row) {
      sql +=
          fmt::format("{}(${}, ${}, ${}, ${}, ${}, ${}, ${})", row > 0 ? ", " : "", row * 7 + 1,
                      row * 7 + 2, row * 7 + 3, row * 7 + 4, row * 7 + 5, row * 7 + 6, row * 7 + 7);
    }
    const auto one = [&](postgres::Transaction& transaction) {
      Params params;
      for (int row = 0; row < rows; ++row) {
        const std::string key = NextKey();
        params.Add(NewId())
            .Add("bench.events")
            .Add("item")
            .Add(key)
            .Add("bench.Changed")
            .Add(version_)
            .Add(postgres::Bytea{payload_});
      }
      Must(transaction.Execute(postgres::Statement{"insert", sql}, params).status());
    };
    return Measure(*writer, statements, rows, one);
  }

  Cost Enqueue(const std::string& schema, const std::string& table, int statements) {
    const auto writer = Open();
    const std::string sql = fmt::format(
        "SELECT {}.enqueue($1::regclass, $2, $3, $4, $5, $6::bigint, $7::bytea)", schema);
    return Measure(*writer, statements, 1, [&](postgres::Transaction& transaction) {
      const std::string key = NextKey();
      Must(transaction
               .Execute(postgres::Statement{"enqueue", sql}, table, "bench.events", "item", key,
                        "bench.Changed", version_, postgres::Bytea{payload_})
               .status());
    });
  }

  Cost EnqueueMany(int statements) {
    const auto writer = Open();
    return Measure(*writer, statements, 100, [&](postgres::Transaction& transaction) {
      Array topics, types, keys, event_types, versions, payloads, ids;
      for (int row = 0; row < 100; ++row) {
        keys.Add(NextKey());
        topics.Add("bench.events");
        types.Add("item");
        event_types.Add("bench.Changed");
        versions.Add(version_);
        payloads.AddBytea(payload_);
        ids.AddPlain(NewId());
      }
      Must(
          transaction
              .Execute(postgres::Statement{"many",
                                           "SELECT lockstep.enqueue_many('new.outbox', $1, $2, $3, "
                                           "$4, $5, $6, $7)"},
                       topics, types, keys, event_types, versions, payloads, ids)
              .status());
    });
  }

  // 20 statements to a transaction, so that commits are a small part.
  Cost Measure(postgres::Connection& writer, int statements, int rows,
               const std::function<void(postgres::Transaction&)>& one) {
    const auto run = [&](int count) {
      for (int done = 0; done < count;) {
        auto transaction = Must(writer.Begin());
        for (int i = 0; i < 20 && done < count; ++i, ++done) one(transaction);
        Must(transaction.Commit());
      }
    };
    run(20);  // plans are made
    const Meter meter(writer, *control_);
    run(statements);
    return meter.Per(int64_t{statements} * rows);
  }

  static std::string NewId() {
    static uint64_t count = 0;
    ++count;
    // Ordered by time, as enqueue's own are.
    return fmt::format("{:08x}-{:04x}-7000-8000-{:012x}", 0x01900000 + (count >> 16),
                       count & 0xffff, (count * 2654435761u) & 0xffffffffffff);
  }

  // All that was inserted: claimed and marked, 500 at a time.
  void Relay(const std::string& table, bool now) {
    const auto session = Open(publisher::OutboxSettings());
    const std::string name = now ? "new" : "old";
    double claim_cpu = 0, mark_cpu = 0, claim_wal = 0, mark_wal = 0;
    int64_t rows = 0;
    const auto began = std::chrono::steady_clock::now();
    std::chrono::steady_clock::duration paused{0};
    const auto metered = [&](double& cpu, double& wal, const std::function<void()>& step) {
      const auto before = std::chrono::steady_clock::now();
      const Meter meter(*session, *control_);
      const auto started = std::chrono::steady_clock::now();
      step();
      const auto ended = std::chrono::steady_clock::now();
      const Cost cost = meter.Per(1);
      cpu += cost.cpu_us;
      wal += cost.wal_bytes;
      paused += (started - before) + (std::chrono::steady_clock::now() - ended);
    };
    std::unique_ptr<publisher::OutboxStore> store;
    if (now) store = Must(publisher::OutboxStore::Open(*session, {"new", "outbox"}));
    publisher::ClaimCursor cursor;
    while (true) {
      publisher::ClaimRequest request;
      request.token = NewId();
      request.owner = "bench";
      request.rows = options_.batch;
      std::vector<publisher::PublishedRow> marks;
      Array sequences, tokens, ids;
      if (now) {
        publisher::Claim claim;
        metered(claim_cpu, claim_wal, [&] { claim = Must(store->ClaimRows(request, cursor)); });
        for (auto& row : claim.rows) {
          marks.push_back(
              {std::make_shared<const publisher::OutboxRow>(std::move(row)), "1234567890"});
        }
        if (marks.empty()) break;
        metered(mark_cpu, mark_wal,
                [&] { Must(store->MarkPublished(marks, "", {request.token})); });
        rows += static_cast<int64_t>(marks.size());
      } else {
        static const std::string claim = postgres::FillNames(
            postgres::FillNames(landed::kClaim, {{"candidate", landed::kCandidate},
                                                 {"earlier", landed::kEarlier},
                                                 {"row", landed::kClaimedRow}}),
            {{"outbox", "old.outbox"}});
        static const std::string mark =
            postgres::FillNames(landed::kMark, {{"outbox", "old.outbox"}});
        int64_t taken = 0;
        metered(claim_cpu, claim_wal, [&] {
          const auto result = Must(session->Execute(
              postgres::Statement{"claim", claim}, request.token, request.owner, int64_t{60'000},
              request.rows, Array(std::vector<int>{0}), 1, cursor.available_at, cursor.sequence,
              Array(std::vector<std::string>()), Array(std::vector<std::string>()), true));
          const postgres::Row first = result[0];
          if (!first.IsNull("last_available_at")) {
            cursor.available_at = first.Text("last_available_at");
            cursor.sequence = first.Int("last_sequence");
          }
          if (first.IsNull("sequence")) return;
          for (const postgres::Row row : result) {
            sequences.Add(row.Int("sequence"));
            tokens.AddPlain(request.token);
            ids.Add("1234567890");
            ++taken;
          }
        });
        if (taken == 0) break;
        metered(mark_cpu, mark_wal, [&] {
          Must(
              session->Execute(postgres::Statement{"mark", mark}, sequences, tokens, ids).status());
        });
        rows += taken;
      }
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began - paused).count();
    const auto per = static_cast<double>(rows);
    Note("claim: " + table, {claim_cpu / per, claim_wal / per});
    Note("mark: " + table, {mark_cpu / per, mark_wal / per});
    if (round_ > 0) rate_[name].push_back(per / seconds);
  }

  nlohmann::ordered_json Report() {
    nlohmann::ordered_json report;
    std::map<std::string, double> cpu, wal;
    for (const auto& [what, values] : cpu_) {
      cpu[what] = Median(values);
      wal[what] = Median(wal_[what]);
    }
    const std::vector<std::string> order = {
        "insert 1: bare.events",  "insert 1: old.outbox",   "insert 1: new.outbox",
        "enqueue: old.outbox",    "enqueue: new.outbox",    "insert 100: bare.events",
        "insert 100: old.outbox", "insert 100: new.outbox", "enqueue_many 100: new.outbox",
        "claim: old.outbox",      "claim: new.outbox",      "mark: old.outbox",
        "mark: new.outbox"};
    if (!options_.json) fmt::print("{:<32} {:>12} {:>12}\n", "per event", "CPU µs", "WAL bytes");
    for (const std::string& what : order) {
      report["per_event"][what] = {{"cpu_us", cpu[what]}, {"wal_bytes", wal[what]}};
      if (!options_.json) fmt::print("{:<32} {:>12.1f} {:>12.0f}\n", what, cpu[what], wal[what]);
    }
    const auto total = [&](const std::map<std::string, double>& of, const std::string& table) {
      return of.at("insert 100: " + table) + of.at("claim: " + table) + of.at("mark: " + table);
    };
    const std::vector<std::pair<std::string, double>> ratios = {
        {"enqueue / plain INSERT into the landed table",
         cpu["enqueue: new.outbox"] / cpu["insert 1: old.outbox"]},
        {"enqueue landed / plain INSERT into the landed table",
         cpu["enqueue: old.outbox"] / cpu["insert 1: old.outbox"]},
        {"INSERT of one row / bare", cpu["insert 1: new.outbox"] / cpu["insert 1: bare.events"]},
        {"row of a 100-row INSERT / bare",
         cpu["insert 100: new.outbox"] / cpu["insert 100: bare.events"]},
        {"row of enqueue_many / bare",
         cpu["enqueue_many 100: new.outbox"] / cpu["insert 100: bare.events"]},
        {"claim and mark, CPU / landed", (cpu["claim: new.outbox"] + cpu["mark: new.outbox"]) /
                                             (cpu["claim: old.outbox"] + cpu["mark: old.outbox"])},
        {"claim and mark, WAL / landed", (wal["claim: new.outbox"] + wal["mark: new.outbox"]) /
                                             (wal["claim: old.outbox"] + wal["mark: old.outbox"])},
        {"insert to published, WAL / landed", total(wal, "new.outbox") / total(wal, "old.outbox")},
        {"insert to published, CPU / landed", total(cpu, "new.outbox") / total(cpu, "old.outbox")},
        {"claim and mark, rows/s / landed", Median(rate_["new"]) / Median(rate_["old"])}};
    for (const auto& [what, ratio] : ratios) {
      report["ratios"][what] = ratio;
      if (!options_.json) fmt::print("{:<54} {:.2f}\n", what, ratio);
    }
    report["claim_and_mark_rows_per_second"] = {{"landed", Median(rate_["old"])},
                                                {"now", Median(rate_["new"])}};
    if (!options_.json) {
      fmt::print("claim and mark, one session: landed {:.0f} rows/s, now {:.0f} rows/s\n",
                 Median(rate_["old"]), Median(rate_["new"]));
    }
    return report;
  }

  const Options options_;
  std::string url_;
  std::string payload_;
  std::unique_ptr<postgres::Connection> control_;
  int round_ = 0;
  int64_t version_ = 0;
  std::map<std::string, std::vector<double>> cpu_, wal_, rate_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  lockstep::bench::Options options;
  CLI::App app{"What an outbox costs its source: server CPU and WAL per event, by stage."};
  app.add_option("--rounds", options.rounds, "of which the medians count")->capture_default_str();
  app.add_option("--rows", options.rows, "events by hundreds, a round")->capture_default_str();
  app.add_option("--singles", options.singles, "events one by one, a round")->capture_default_str();
  app.add_option("--keys", options.keys, "aggregates")->capture_default_str();
  app.add_option("--payload", options.payload, "bytes")->capture_default_str();
  app.add_option("--batch", options.batch, "rows per claim")->capture_default_str();
  app.add_option("--landed", options.landed, "the outbox as it was")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto report = lockstep::bench::Bench(options).Run();
    if (options.json) fmt::print("{}\n", report.dump(2));
  } catch (const std::exception& e) {
    fmt::print(stderr, "outbox_bench: {}\n", e.what());
    return 1;
  }
  return 0;
}
