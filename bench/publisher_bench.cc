// The publisher: rows/s beside the bare claim-and-mark loop in the same run, and latency.
// needs: postgres
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/child.h"
#include "bench/machine_cpu.h"
#include "platform/log/log.h"
#include "platform/metrics.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/service/publisher.h"
#include "pubsub/transport.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

using publisher::Dispatcher;
using publisher::DispatchResult;
using publisher::RowPtr;
using Clock = std::chrono::steady_clock;

struct Options {
  int rows = 60'000;
  int keys = 10'000;
  int64_t published = 5'000'000;
  int held = 100'000;
  int batch = 500;
  int latency_seconds = 10;
  int repeats = 3;
  std::string bus = "emulator";
  std::string only;  // one part of it; empty = all
  bool json = false;
};

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// A bus that answers at once: what is left is the relay itself.
class NullBus : public Dispatcher {
 public:
  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    done(std::vector<DispatchResult>(rows.size(), {absl::OkStatus(), "1", ""}));
  }
};

// Counts answers and remembers when each event's came.
class Watch : public Dispatcher {
 public:
  explicit Watch(Dispatcher& next) : next_(next) {}

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override {
    auto kept = on_row ? rows : std::vector<RowPtr>();
    const auto count = static_cast<int64_t>(rows.size());
    next_.Dispatch(table, topic, std::move(rows),
                   [this, count, kept = std::move(kept), done = std::move(done)](auto results) {
                     for (const RowPtr& row : kept) on_row(*row);
                     answered += count;
                     done(std::move(results));
                   });
  }

  std::atomic<int64_t> answered = 0;
  std::function<void(const publisher::OutboxRow&)> on_row;

 private:
  Dispatcher& next_;
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    const char* url = std::getenv("LOCKSTEP_TEST_PG");
    if (url == nullptr) throw std::runtime_error("run it with scripts/bench publisher");
    url_ = url;
    connection_ = Must(postgres::Connection::Open({.url = url_, .statement_timeout = Millis(0)}));
    Must(postgres::Migrator(*connection_, "lockstep", sql::OutboxMigrations()).Up());
    if (options_.bus == "emulator") {
      emulator_ =
          std::make_unique<Child>(std::vector<std::string>{ProgramFolder() + "/lockstep-emulator"});
      transport_ = Must(pubsub::MakeTransport({.emulator_host = emulator_->address()}));
      pubsub::Topic topic;
      topic.name = "projects/bench/topics/bench.events";
      Must(transport_->admin().CreateTopic(topic).status());
    }
  }

  nlohmann::ordered_json Run() {
    if (Wanted("empty")) Case("empty table", 1, [] {});
    if (Wanted("two")) Case("2 instances", 2, [] {});
    if (Wanted("snapshot")) {
      const auto reader =
          Must(postgres::Connection::Open({.url = url_, .idle_in_transaction_timeout = Millis(0)}));
      Must(reader->Run(
          "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lockstep.outboxes"));
      Case("long snapshot open", 1, [&] { Churn(); });
    }
    if (Wanted("held"))
      Case(
          "held rows of one aggregate", 1, [&] { AddHeld(); }, /*once=*/true);
    if (Wanted("published")) PublishedRowsKept();
    if (Wanted("latency")) Latency();
    return report_;
  }

 private:
  bool Wanted(const char* part) const { return options_.only.empty() || options_.only == part; }

  // On the outbox that is looked at, whatever its name.
  void Execute(std::string sql) {
    for (size_t at = 0; (at = sql.find("bench.outbox", at)) != std::string::npos; ++at) {
      sql.replace(at, 12, "bench." + name_);
    }
    Must(connection_->Run(sql));
  }

  void NewTable() {
    Execute(
        "SELECT lockstep.drop_outbox(outbox, true) FROM lockstep.outboxes WHERE outbox = "
        "to_regclass('bench.outbox')");
    Execute("SELECT lockstep.create_outbox('bench.outbox')");
  }

  // A backlog of `options_.rows` rows. Plain INSERTs: what is measured comes after.
  void AddBacklog() {
    ++round_;
    Execute(fmt::format(
        "INSERT INTO bench.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, "
        "version, payload) SELECT lockstep.new_event_id(), 'bench.events', 'item', "
        "'k' || (i % "
        "{0}), "
        "'bench.Changed', {1}::bigint * 1000000 + i / {0} + 1, decode(repeat('ab', 200), 'hex') "
        "FROM generate_series(0, {2}) i",
        options_.keys, round_, options_.rows - 1));
    Execute("VACUUM ANALYZE bench.outbox");
    Execute("VACUUM ANALYZE bench.outbox_pending");
    Execute("CHECKPOINT");
  }

  void AddHeld() {
    Execute(fmt::format(
        "INSERT INTO bench.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, "
        "version, payload) SELECT lockstep.new_event_id(), 'bench.events', "
        "'item', 'held', 'bench.Changed', i, 'p' FROM generate_series(1, {}) i",
        options_.held));
    Execute(
        "UPDATE bench.outbox_pending SET dead_at = now(), available_at = 'infinity' WHERE version "
        "= 1");
    // Met once and pushed out of the way: what follows is how it stays.
    const Clock::time_point start = Clock::now();
    int64_t looks = 0;
    const auto connection = Must(postgres::Connection::Open({.url = url_}));
    const auto store = Must(publisher::OutboxStore::Open(*connection, {"bench", name_}));
    for (int candidates = 1; candidates > 0; ++looks) {
      publisher::ClaimCursor cursor;
      candidates = Must(store->ClaimRows(Request(), cursor)).candidates;
    }
    report_["pushing_held_rows_seconds"] = Seconds(Clock::now() - start);
  }

  // Rows of their own keys, in the order of every index: quick to make.
  void AddPublished() {
    Execute("ALTER TABLE bench.outbox DISABLE TRIGGER lockstep_inserted");
    Execute(fmt::format(
        "INSERT INTO bench.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, "
        "version, payload) SELECT lpad(to_hex(i), 32, '0')::uuid, "
        "'bench.events', 'item', 'p' || lpad(i::text, 9, '0'), 'bench.Changed', 1, "
        "decode(repeat('ab', 200), 'hex') FROM generate_series(1, {}) i",
        options_.published));
    Execute("ALTER TABLE bench.outbox ENABLE TRIGGER lockstep_inserted");
    Execute(
        "INSERT INTO bench.outbox_published (sequence, published_at, attempts, message_id) SELECT "
        "sequence, now(), 0, sequence::text FROM bench.outbox");
    Execute("VACUUM ANALYZE bench.outbox_published");
  }

  // Leaves a backlog's worth of dead tuples: rows that were claimed and marked.
  void Churn() { Bare(); }

  publisher::ClaimRequest Request() {
    publisher::ClaimRequest request;
    request.rows = options_.batch;
    request.owner = "bare";
    request.token = fmt::format("00000000-0000-4000-8000-{:012}", ++tokens_);
    return request;
  }

  // Rows/s, and the server's CPU for one row: of the sessions that claim and mark.
  struct Sample {
    double rate = 0, cpu_us = 0;
  };

  double SessionsCpu(const std::string& name) {
    double seconds = 0;
    const auto sessions = Must(
        connection_->Execute("SELECT pid FROM pg_stat_activity WHERE application_name = $1", name));
    for (const postgres::Row row : sessions) seconds += CpuSeconds(row.Int("pid"));
    return seconds;
  }

  // The bound: the same claim and the same mark, one connection, nothing else.
  Sample Bare() {
    AddBacklogAndStart();
    const auto connection =
        Must(postgres::Connection::Open({.url = url_, .application_name = "bench bare"}));
    const auto store = Must(publisher::OutboxStore::Open(*connection, {"bench", name_}));
    const double cpu = SessionsCpu("bench bare");
    const Clock::time_point start = Clock::now();
    publisher::ClaimCursor cursor;
    int64_t rows = 0;
    while (rows < options_.rows) {
      const auto claim = Must(store->ClaimRows(Request(), cursor));
      std::vector<publisher::PublishedRow> marks;
      for (const auto& row : claim.rows) {
        marks.push_back({std::make_shared<const publisher::OutboxRow>(row), "1"});
      }
      if (!marks.empty()) {
        Must(store->MarkPublished(marks, "", {marks.front().row->lock_token}));
      }
      if (claim.candidates < options_.batch) cursor = {};
      rows += static_cast<int64_t>(claim.rows.size());
    }
    const double seconds = Seconds(Clock::now() - start);
    return {static_cast<double>(rows) / seconds,
            (SessionsCpu("bench bare") - cpu) * 1e6 / static_cast<double>(rows)};
  }

  struct Instance {
    std::unique_ptr<Dispatcher> bus;
    std::unique_ptr<Watch> watch;
    std::unique_ptr<MetricsRegistry> metrics;
    std::unique_ptr<publisher::PublisherService> service;
  };

  std::unique_ptr<Instance> StartInstance(int instances) {
    publisher::PublisherConfig config;
    config.database = url_;
    config.cleaner.enabled = false;
    config.ownership.ping_interval = Millis(200);
    publisher::RelayOptions relay;
    relay.table = "bench." + name_;
    relay.batch_size = options_.batch;
    relay.max_in_flight = std::max(2'000, 6 * options_.batch);
    relay.single_active = instances == 1;
    config.tables.push_back(relay);
    config.topics = {{"bench.events", "bench.events"}};
    auto instance = std::make_unique<Instance>();
    if (transport_ != nullptr) {
      instance->bus = publisher::MakePubsubDispatcher(*transport_, "bench", config);
    } else {
      instance->bus = std::make_unique<NullBus>();
    }
    instance->watch = std::make_unique<Watch>(*instance->bus);
    instance->metrics = std::make_unique<MetricsRegistry>();
    instance->service =
        std::make_unique<publisher::PublisherService>(config, *instance->watch, *instance->metrics);
    return instance;
  }

  Sample Relayed(int instances) {
    std::vector<std::unique_ptr<Instance>> all;
    for (int i = 0; i < instances; ++i) all.push_back(StartInstance(instances));
    // Shards are shared out before there is anything to do.
    for (const auto& instance : all) Must(instance->service->Start());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const double cpu = SessionsCpu("lockstep-publisher");
    AddBacklogAndStart();
    const Clock::time_point start = Clock::now();
    const auto unpublished = [&] {
      int64_t answered = 0;
      for (const auto& instance : all) answered += instance->watch->answered;
      return answered < options_.rows;
    };
    while (unpublished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Marks included.
    for (const auto& instance : all) Must(instance->service->WaitUntilDrained());
    const double used = SessionsCpu("lockstep-publisher") - cpu;
    for (const auto& instance : all) instance->service->Stop();
    return {options_.rows / Seconds(Clock::now() - start), used * 1e6 / options_.rows};
  }

  // Adds the rows held back, then lets go of them all in one statement: the
  // relays start on a whole backlog, as the bare loop does.
  void AddBacklogAndStart() {
    Execute("ALTER TABLE bench.outbox_pending ALTER available_at SET DEFAULT 'infinity'");
    AddBacklog();
    Execute("ALTER TABLE bench.outbox_pending ALTER available_at SET DEFAULT now()");
    Execute(
        "UPDATE bench.outbox_pending SET available_at = now() WHERE available_at = 'infinity' AND "
        "dead_at IS NULL AND aggregate_hash <> lockstep.aggregate_hash('held', 'item', NULL)");
    Execute("VACUUM bench.outbox_pending");
    Execute("SELECT pg_notify(lockstep.wake_channel('bench.outbox'), '')");
  }

  // Bare loop and relay, each on the same footing: a new table, prepared alike. `once`: what is
  // prepared stays as it is, and serves all measurements. The medians of some each.
  void Case(const std::string& name, int instances, const std::function<void()>& prepare,
            bool once = false) {
    bool made = false;
    const auto ready = [&] {
      if (made && once) return;
      NewTable();
      prepare();
      made = true;
    };
    Samples bare, relay;
    for (int i = 0; i < options_.repeats; ++i) {
      ready();
      bare.push_back(Bare());
      ready();
      relay.push_back(Relayed(instances));
    }
    Tell(name, bare, relay);
  }

  // Beside an empty outbox, in turn: this machine is not the same from one minute to the next.
  void PublishedRowsKept() {
    name_ = "kept";
    NewTable();
    AddPublished();
    Samples bare[2], relay[2];
    for (int i = 0; i < 2 * options_.repeats; ++i) {
      const int kept = (i + i / 2) % 2;
      name_ = kept == 1 ? "kept" : "outbox";
      for (const bool as_relay : {false, true}) {
        if (kept == 0) NewTable();
        (as_relay ? relay : bare)[kept].push_back(as_relay ? Relayed(1) : Bare());
      }
    }
    name_ = "outbox";
    Tell("empty, in turn", bare[0], relay[0]);
    Tell("published rows kept", bare[1], relay[1]);
    const auto ratio = [&](const char* name, double kept, double empty) {
      report_[name] = kept / empty;
      if (!options_.json) fmt::print("{}: {:.2f}\n", name, kept / empty);
    };
    ratio("published_rows_against_empty", Median(relay[1]).rate, Median(relay[0]).rate);
    ratio("published_rows_against_empty_cpu", Median(relay[1]).cpu_us, Median(relay[0]).cpu_us);
  }

  using Samples = std::vector<Sample>;
  static Sample Median(const Samples& samples) {
    const auto of = [&](double Sample::*part) {
      std::vector<double> values;
      for (const Sample& sample : samples) values.push_back(sample.*part);
      std::sort(values.begin(), values.end());
      return values[values.size() / 2];
    };
    return {of(&Sample::rate), of(&Sample::cpu_us)};
  }

  void Tell(const std::string& name, const Samples& bares, const Samples& relays) {
    const Sample bare = Median(bares);
    const Sample relay = Median(relays);
    report_[name] = {{"bare_rows_per_second", bare.rate},
                     {"relay_rows_per_second", relay.rate},
                     {"share", relay.rate / bare.rate},
                     {"bare_server_cpu_us", bare.cpu_us},
                     {"relay_server_cpu_us", relay.cpu_us}};
    Say(name, report_[name]);
  }

  void Say(const std::string& name, const nlohmann::ordered_json& figures) const {
    if (options_.json) return;
    fmt::print(
        "{:<28} bare {:>8.0f} rows/s   relay {:>8.0f} rows/s   share {:.2f}   server CPU {:.1f} "
        "and {:.1f} us a row\n",
        name, figures["bare_rows_per_second"].get<double>(),
        figures["relay_rows_per_second"].get<double>(), figures["share"].get<double>(),
        figures["bare_server_cpu_us"].get<double>(), figures["relay_server_cpu_us"].get<double>());
    std::fflush(stdout);
  }

  // From the source's commit to the bus's answer, at 200 events/s.
  void Latency() {
    NewTable();
    const auto instance = StartInstance(1);
    std::mutex mu;
    std::vector<Clock::time_point> answers(200 * options_.latency_seconds + 1);
    std::vector<Clock::time_point> commits(answers.size());
    std::vector<double> commit_times;
    instance->watch->on_row = [&](const publisher::OutboxRow& row) {
      std::scoped_lock lock(mu);
      answers[row.version] = Clock::now();
    };
    Must(instance->service->Start());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const Clock::time_point start = Clock::now();
    for (size_t i = 1; i < answers.size(); ++i) {
      std::this_thread::sleep_until(start + std::chrono::milliseconds(5) * i);
      auto transaction = Must(connection_->Begin());
      Must(transaction
               .Execute("SELECT lockstep.enqueue('bench.outbox', 'bench.events', 'item', 'k', "
                        "'bench.Changed', $1, 'payload')",
                        static_cast<int64_t>(i))
               .status());
      const Clock::time_point before = Clock::now();
      Must(transaction.Commit());
      commits[i] = Clock::now();
      commit_times.push_back(Seconds(commits[i] - before) * 1000);
    }
    Must(instance->service->WaitUntilDrained());
    instance->service->Stop();
    std::vector<double> waits;
    for (size_t i = 1; i < answers.size(); ++i) {
      waits.push_back(std::max(0.0, Seconds(answers[i] - commits[i]) * 1000));
    }
    std::sort(waits.begin(), waits.end());
    std::sort(commit_times.begin(), commit_times.end());
    const auto at = [](const std::vector<double>& values, double part) {
      return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
    };
    report_["commit_to_published_ms"] = {
        {"p50", at(waits, 0.5)}, {"p99", at(waits, 0.99)}, {"commit_p50", at(commit_times, 0.5)}};
    if (!options_.json) {
      fmt::print(
          "commit to published at 200/s  p50 {:.2f} ms  p99 {:.2f} ms  (a commit: {:.2f} ms)\n",
          at(waits, 0.5), at(waits, 0.99), at(commit_times, 0.5));
    }
  }

  const Options options_;
  std::string url_;
  std::unique_ptr<postgres::Connection> connection_;
  std::unique_ptr<Child> emulator_;
  std::unique_ptr<pubsub::Transport> transport_;
  nlohmann::ordered_json report_;
  std::string name_ = "outbox";
  int round_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  lockstep::bench::Options options;
  CLI::App app{"The publisher's rows/s beside the bare claim-and-mark loop, and its latency."};
  app.add_option("--rows", options.rows, "rows per measurement")->capture_default_str();
  app.add_option("--keys", options.keys, "ordering keys")->capture_default_str();
  app.add_option("--published", options.published, "published rows kept")->capture_default_str();
  app.add_option("--held", options.held, "held rows of one aggregate")->capture_default_str();
  app.add_option("--batch", options.batch, "rows per claim")->capture_default_str();
  app.add_option("--repeats", options.repeats, "of each; the medians count")->capture_default_str();
  app.add_option("--bus", options.bus,
                 "emulator (ours, as a process beside), or null: answers at once")
      ->check(CLI::IsMember({"emulator", "null"}))
      ->capture_default_str();
  app.add_option("--only", options.only, "one part")
      ->check(CLI::IsMember({"empty", "two", "snapshot", "held", "published", "latency"}));
  app.add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto report = lockstep::bench::Bench(options).Run();
    if (options.json) fmt::print("{}\n", report.dump(2));
  } catch (const std::exception& e) {
    fmt::print(stderr, "publisher_bench: {}\n", e.what());
    return 1;
  }
  return 0;
}
