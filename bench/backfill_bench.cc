// scripts/bench backfill (needs: postgres): rows a second of a backfill from a table into an empty
// replica, by a publisher's worker and a runner at the same time, beside what the runner does alone
// from a backlog of the same rows as events. In turn, round by round, on one machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/child.h"
#include "bench/runner_contest.h"
#include "bench/runner_world.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "publisher/backfill/worker.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

using publisher::BackfillStore;
using publisher::BackfillWorker;

constexpr char kOutbox[] = "src.video_outbox";

constexpr char kSource[] = R"(
DROP SCHEMA IF EXISTS src CASCADE;
CREATE SCHEMA src;
CREATE TABLE src.video (
  video_id uuid PRIMARY KEY, title text, description text, duration_seconds bigint, version bigint NOT NULL))";
constexpr char kFill[] =
    "INSERT INTO src.video SELECT md5(n::text)::uuid, 'Title ' || n, 'A description of ordinary "
    "length, ' || n % 100, n % 1000, 1 FROM generate_series(1, $1::int) n";
constexpr char kRows[] =
    "SELECT video_id::text AS id, row_to_json(v)::text AS payload FROM (SELECT video_id, title, "
    "description, duration_seconds FROM src.video) v";

struct Options {
  std::string database;
  int rows = 300'000;
  int outstanding = 4'000;
  int rounds = 3;
  bool json = false;
};

template <typename Value>
Value Must(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "bench: {}\n", MessageOf(value.status()));
  std::exit(1);
}
void Must(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "bench: {}\n", MessageOf(status));
  std::exit(1);
}

publisher::Declaration Videos() {
  publisher::Declaration declaration;
  declaration.name = "videos";
  declaration.outbox = {"src", "video_outbox"};
  declaration.topic = "bench.video.changed.v1";
  declaration.table = "src.video";
  declaration.key = {"video_id"};
  declaration.aggregate_type = "video";
  declaration.aggregate_id = "video_id";
  declaration.version = "version";
  declaration.event_type = "Created";
  for (const char* field : {"video_id", "title", "description", "duration_seconds"}) {
    declaration.fields.emplace_back(field, field);
  }
  return declaration;
}

class BackfillBench {
 public:
  BackfillBench(const Options& options, std::string emulator)
      : options_(options), emulator_(std::move(emulator)) {
    connection_ = Must(
        postgres::Connection::Open({.url = options_.database, .statement_timeout = Millis(0)}));
    Must(postgres::Migrator(*connection_, "lockstep", sql::OutboxMigrations()).Up());
    Must(connection_->Run(kSource));
    Must(connection_->Run(fmt::format("SELECT lockstep.create_outbox('{}')", kOutbox)));
    Must(connection_->Run(kFill, options_.rows));
    Must(connection_->Run("VACUUM ANALYZE src.video"));
  }

  struct Round {
    RunnerRun backlog, backfill;
    double sent = 0;  // rows a second, until Pub/Sub had taken the last
  };
  Round Measure() {
    Round round;
    world_.Reset(0, Ids::kRandom);
    round.backlog = ThroughRunner(world_, options_.outstanding, emulator_, Events());
    world_.Reset(0, Ids::kRandom);
    round.backfill = Backfill(round.sent);
    return round;
  }

 private:
  // What a source would have published, had each row been made by an event.
  std::vector<pubsub::Message> Events() {
    const auto rows = Must(connection_->Execute(kRows));
    const std::string occurred = FormatTimestamp(Clock::System().Now());
    std::vector<pubsub::Message> events;
    events.reserve(static_cast<size_t>(rows.rows()));
    for (const postgres::Row row : rows) {
      pubsub::Message& message = events.emplace_back();
      message.ordering_key = row.String("id");
      message.data = row.String("payload");
      message.attributes = {{"event_id", NewId()},
                            {"event_type", "Created"},
                            {"aggregate_type", "video"},
                            {"aggregate_id", row.String("id")},
                            {"version", "1"},
                            {"schema_version", "1"},
                            {"occurred_at", occurred},
                            {"content_type", "application/json"},
                            {"topic", "bench.video.changed.v1"},
                            {"sequence", fmt::format("{}", events.size())}};
    }
    return events;
  }

  std::string NewId() {
    const uint64_t high = random_(), low = random_();
    return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                       high & 0xfff, low >> 52, low & 0xffffffffffff);
  }

  RunnerRun Backfill(double& sent) {
    BackfillStore store(*connection_);
    const std::string id = Must(store.Create(Videos(), options_.rows, "bench", ""));
    const RunnerRun run = ThroughRunner(
        world_, options_.outstanding, emulator_, options_.rows,
        [&](pubsub::Transport& transport, const std::string& topic) -> std::shared_ptr<void> {
          struct Parts {
            std::unique_ptr<pubsub::Publisher> publisher;
            MetricsRegistry metrics;
            std::unique_ptr<BackfillWorker> worker;
          };
          auto parts = std::make_shared<Parts>();
          parts->publisher = transport.NewPublisher({});
          parts->worker = std::make_unique<BackfillWorker>(
              BackfillWorker::Options{
                  .database = options_.database, .instance = "bench", .outboxes = {kOutbox}},
              *parts->publisher, [topic](const std::string&) { return topic; }, parts->metrics);
          Must(parts->worker->Start());
          return parts;
        });
    const auto record = Must(store.Find(id));
    if (record.state != "done") Must(absl::InternalError("the backfill is " + record.state));
    const std::chrono::duration<double> took = *record.ended_at - *record.begun_at;
    sent = options_.rows / took.count();
    return run;
  }

  const Options& options_;
  const std::string emulator_;
  RunnerWorld world_{options_.database, "feed_state"};
  std::unique_ptr<postgres::Connection> connection_;
  std::mt19937_64 random_{19};
};

template <typename Of>
double Median(const std::vector<BackfillBench::Round>& rounds, const Of& of) {
  std::vector<double> values;
  for (const auto& round : rounds) values.push_back(of(round));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(const Options& options) {
  const Child emulator({ProgramFolder() + "/lockstep-emulator", "--port", "0"});
  if (emulator.address().empty()) {
    fmt::print(stderr, "bench: lockstep-emulator did not start\n");
    return 1;
  }
  BackfillBench bench(options, emulator.address());
  std::vector<BackfillBench::Round> rounds;
  for (int i = 0; i < options.rounds; ++i) rounds.push_back(bench.Measure());
  using Round = BackfillBench::Round;
  const double backfill = Median(rounds, [](const Round& r) { return r.backfill.rate; });
  const double backlog = Median(rounds, [](const Round& r) { return r.backlog.rate; });
  const double sent = Median(rounds, [](const Round& r) { return r.sent; });
  const double ratio =
      Median(rounds, [](const Round& r) { return r.backfill.rate / r.backlog.rate; });
  const double cpu =
      Median(rounds, [](const Round& r) { return r.backlog.machine_us / r.backfill.machine_us; });
  const int64_t mib = rounds.back().backfill.peak_kib / 1024;
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"rows", options.rows},
                                               {"rounds", options.rounds},
                                               {"backfill_per_s", static_cast<int64_t>(backfill)},
                                               {"sent_per_s", static_cast<int64_t>(sent)},
                                               {"backlog_per_s", static_cast<int64_t>(backlog)},
                                               {"of_backlog", ratio},
                                               {"of_backlog_by_cpu", cpu},
                                               {"batch", rounds.back().backfill.batch},
                                               {"backlog_batch", rounds.back().backlog.batch},
                                               {"peak_rss_mib", mib}})
                           .dump(2));
  } else {
    fmt::print(
        "{} rows: {:.0f}/s by backfill (sent at {:.0f}/s), {:.0f}/s from a backlog of events: "
        "{:.2f} of it, {:.2f} by the CPU time of all processes; RSS {} MiB, publisher and runner "
        "together\n",
        options.rows, backfill, sent, backlog, ratio, cpu, mib);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"Rows a second of a backfill, beside the runner's pace from a backlog"};
  app.add_option("--database", options.database, "Postgres")
      ->envname("LOCKSTEP_TEST_PG")
      ->required();
  app.add_option("--rows", options.rows, "of the table")->capture_default_str();
  app.add_option("--outstanding", options.outstanding, "messages in the runner's hands")
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "of which the medians are told")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object on stdout");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return lockstep::bench::Main(options);
}
