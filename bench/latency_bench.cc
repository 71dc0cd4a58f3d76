// scripts/bench latency (needs: postgres): from the source's commit to the visible row, end to end:
// outbox, publisher, emulator, runner, read model; at a steady rate, in units of a bare commit at
// the same rate. Both are measured in turn, round by round, for a shared machine's disk is not the
// same from one minute to the next.
#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <unordered_map>

#include "bench/pipeline_world.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::bench {
namespace {

using Steady = std::chrono::steady_clock;
using Ms = std::chrono::duration<double, std::milli>;

// The notification leaves Postgres with the commit that makes the row visible.
constexpr char kTables[] = R"(
CREATE TABLE bench.bare (n bigint);
CREATE FUNCTION bench.tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('seen', NEW.video_id::text); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON bench.video FOR EACH ROW EXECUTE FUNCTION bench.tell())";

struct Options {
  std::string database;
  int rate = 200;
  int seconds = 20;
  int warmup = 3;
  int rounds = 10;
  bool json = false;
};

struct Percentiles {
  double p50 = 0, p99 = 0;
};
Percentiles Of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values[values.size() * 99 / 100]};
}

// Commits transactions of one statement at a steady rate, whatever one takes.
class Committer {
 public:
  Committer(const Options& options, std::string_view statement)
      : connection_(Connect(options.database)),
        rate_(options.rate),
        statement_{.name = "commit", .sql = statement} {}

  // Answers when each began and when it had committed.
  struct Times {
    Steady::time_point began, committed;
  };
  template <typename Parameters>
  std::vector<Times> Run(int first, int count, const Parameters& parameters) {
    std::vector<Times> times;
    const auto start = Steady::now();
    for (int i = 0; i < count; ++i) {
      std::this_thread::sleep_until(start + std::chrono::nanoseconds(1'000'000'000LL * i / rate_));
      const postgres::Params params = parameters(first + i);
      const auto began = Steady::now();
      auto transaction = connection_->Begin();
      Check("BEGIN", transaction.status());
      Check("a statement", transaction->Execute(statement_, params).status());
      Check("COMMIT", transaction->Commit());
      times.push_back({began, Steady::now()});
    }
    return times;
  }

 private:
  std::unique_ptr<postgres::Connection> connection_;
  int rate_;
  postgres::Statement statement_;
};

// Hears which rows have become visible, and when.
class Watcher {
 public:
  explicit Watcher(const std::string& url) : connection_(Connect(url)) {
    Check("LISTEN", connection_->Listen("seen"));
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
  using Seen = std::unordered_map<std::string, Steady::time_point>;
  // All that was seen, once it is `count`; nothing if that takes longer than half a minute.
  std::optional<Seen> Await(size_t count) {
    std::unique_lock lock(mu_);
    if (!more_.wait_for(lock, std::chrono::seconds(30), [&] { return seen_.size() >= count; })) {
      return std::nullopt;
    }
    return seen_;
  }

 private:
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd socket{connection_->socket(), POLLIN, 0};
      poll(&socket, 1, 50);
      const auto told = connection_->TakeNotifications();
      Check("notifications", told.status());
      const auto now = Steady::now();
      std::scoped_lock lock(mu_);
      for (const auto& one : *told) seen_.emplace(one.payload, now);
      more_.notify_one();
    }
  }

  std::unique_ptr<postgres::Connection> connection_;
  std::mutex mu_;
  std::condition_variable more_;
  Seen seen_;
  std::jthread thread_;
};

std::string Id(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }

struct Figures {
  Percentiles bare, end_to_end;
};

Figures Measure(const Options& options) {
  const int events = options.rate * options.seconds / options.rounds;
  if (events < 2) Die("--seconds", "no events for so many rounds");
  Pipeline pipeline(options.database);
  Check("tables", Connect(options.database)->Run(kTables));
  Watcher watcher(options.database);
  Committer bare(options, "INSERT INTO bench.bare VALUES ($1)");
  Committer source(options,
                   "SELECT lockstep.enqueue('src.video_outbox', 'bench.video.changed.v1', 'video', "
                   "$1, 'Created', 1, $2, content_type => 'application/json')");
  const auto number = [](int i) { return postgres::Params(i); };
  const auto event = [](int i) {
    return postgres::Params(
        Id(i), postgres::Bytea{fmt::format(R"({{"video_id":"{}","title":"t"}})", Id(i))});
  };
  int next = 0;
  // Runs until all of it has been heard of; answers how long that took after each commit.
  const auto heard = [&](int count) {
    const int first = next;
    next += count;
    const auto times = source.Run(first, count, event);
    const auto seen = watcher.Await(static_cast<size_t>(next));
    if (!seen.has_value()) {
      pipeline.Stop();
      Die("not every row became visible, see the logs in", pipeline.folder());
    }
    std::vector<double> took;
    for (int i = 0; i < count; ++i) {
      took.push_back(std::max(0.0, Ms(seen->at(Id(first + i)) - times[i].committed).count()));
    }
    return took;
  };
  heard(options.rate * options.warmup);
  std::vector<double> bare_times, times;
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto& one : bare.Run(0, events / 2, number)) {
      bare_times.push_back(Ms(one.committed - one.began).count());
    }
    const auto took = heard(events);
    times.insert(times.end(), took.begin(), took.end());
  }
  return {Of(std::move(bare_times)), Of(std::move(times))};
}

int Main(const Options& options) {
  const auto [bare, end_to_end] = Measure(options);
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"rate", options.rate},
                                               {"bare_p50_ms", bare.p50},
                                               {"bare_p99_ms", bare.p99},
                                               {"p50_ms", end_to_end.p50},
                                               {"p99_ms", end_to_end.p99},
                                               {"p50_commits", end_to_end.p50 / bare.p50},
                                               {"p99_commits", end_to_end.p99 / bare.p50},
                                               {"p99_of_p99", end_to_end.p99 / bare.p99}})
                           .dump(2));
  } else {
    fmt::print(
        "at {}/s: bare commit p50 {:.2f} ms, p99 {:.2f} ms; source commit to visible row p50 "
        "{:.2f} ms, p99 {:.2f} ms: {:.1f} and {:.1f} bare commits (p99 against p99: {:.1f})\n",
        options.rate, bare.p50, bare.p99, end_to_end.p50, end_to_end.p99, end_to_end.p50 / bare.p50,
        end_to_end.p99 / bare.p50, end_to_end.p99 / bare.p99);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"From the source's commit to the visible row, in units of a bare commit"};
  app.add_option("--database", options.database, "Postgres")
      ->envname("LOCKSTEP_TEST_PG")
      ->required();
  app.add_option("--rate", options.rate, "events a second")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of events, in all")->capture_default_str();
  app.add_option("--rounds", options.rounds, "of bare commits, then events")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--warmup", options.warmup, "seconds that don't count")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object on stdout");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return lockstep::bench::Main(options);
}
