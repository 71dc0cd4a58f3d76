// scripts/bench runner (needs: postgres): events a second through the runner, beside the raw bound
// (the same statements from a bare loop, nothing decoded, no bus) and beside a handler that runs
// one transaction per message; four connections each, in one run. And the runner with inbox:
// aggregate, beside the same bound.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/child.h"
#include "bench/runner_contest.h"
#include "bench/runner_world.h"
#include "platform/log/log.h"

namespace lockstep::bench {
namespace {

struct Options {
  std::string database;
  int events = 300'000;
  int handler_events = 10'000;
  int64_t inbox_rows = 0;
  int outstanding = 4'000;
  int memory_events = 0;
  int rounds = 1;
  std::string stream;  // empty = all
  std::string ids;     // of the full inbox; empty = both kinds
  bool json = false;
};

// One round of one contest.
struct Round {
  double bound = 0, handler = 0;
  RunnerRun run, by_versions;
};
using Rounds = std::vector<Round>;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Of>
double Median(const Rounds& rounds, const Of& of) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(of(round));
  return Median(std::move(values));
}

class RunnerBench {
 public:
  RunnerBench(const Options& options, std::string emulator)
      : options_(options), emulator_(std::move(emulator)) {}

  void Streams();
  void FullInbox(Ids ids);
  void Memory();
  const nlohmann::ordered_json& results() const { return results_; }

 private:
  Round Measure(Stream stream);
  void Tell(Stream stream, const Rounds& rounds);
  RunnerRun RunnerAlone(RunnerWorld& world, Stream stream, Ids ids, int64_t inbox_rows);
  template <typename... Words>
  void Say(fmt::format_string<Words...> text, Words&&... words) const {
    if (options_.json) return;
    fmt::print(text, std::forward<Words>(words)...);
    std::fflush(stdout);
  }

  const Options& options_;
  const std::string emulator_;
  RunnerWorld world_{options_.database, "feed_state"};
  int seed_ = 0;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

std::string_view Name(Ids ids) { return ids == Ids::kRandom ? "random" : "time-ordered"; }

Round RunnerBench::Measure(Stream stream) {
  Round round;
  world_.Reset(0, Ids::kRandom);
  round.bound = RawBound(world_, MakeEvents(stream, Ids::kRandom, options_.events, ++seed_));
  round.run = RunnerAlone(world_, stream, Ids::kRandom, 0);
  world_.ByVersions(true);
  round.by_versions = RunnerAlone(world_, stream, Ids::kRandom, 0);
  world_.ByVersions(false);
  world_.Reset(0, Ids::kRandom);
  round.handler =
      Handler(world_, MakeEvents(stream, Ids::kRandom, options_.handler_events, ++seed_));
  return round;
}

RunnerRun RunnerBench::RunnerAlone(RunnerWorld& world, Stream stream, Ids ids, int64_t inbox_rows) {
  world.Reset(inbox_rows, ids);
  return ThroughRunner(world, options_.outstanding, emulator_,
                       MakeEvents(stream, ids, options_.events, ++seed_));
}

void RunnerBench::Tell(Stream stream, const Rounds& rounds) {
  const double rate = Median(rounds, [](const Round& r) { return r.run.rate; });
  const double bound = Median(rounds, [](const Round& r) { return r.bound; });
  const double handler = Median(rounds, [](const Round& r) { return r.handler; });
  const double of_bound = Median(rounds, [](const Round& r) { return r.run.rate / r.bound; });
  const double times = Median(rounds, [](const Round& r) { return r.run.rate / r.handler; });
  const double aggregate = Median(rounds, [](const Round& r) { return r.by_versions.rate; });
  const double aggregate_of_bound =
      Median(rounds, [](const Round& r) { return r.by_versions.rate / r.bound; });
  const double aggregate_cpu = Median(rounds, [](const Round& r) { return r.by_versions.cpu_us; });
  const double batch = Median(rounds, [](const Round& r) { return r.run.batch; });
  const double cpu = Median(rounds, [](const Round& r) { return r.run.cpu_us; });
  const int64_t mib = rounds.back().run.peak_kib / 1024;
  results_.push_back({{"stream", Name(stream)},
                      {"events", options_.events},
                      {"rounds", rounds.size()},
                      {"runner_per_s", static_cast<int64_t>(rate)},
                      {"bound_per_s", static_cast<int64_t>(bound)},
                      {"handler_per_s", static_cast<int64_t>(handler)},
                      {"of_bound", of_bound},
                      {"times_handler", times},
                      {"aggregate_per_s", static_cast<int64_t>(aggregate)},
                      {"aggregate_of_bound", aggregate_of_bound},
                      {"aggregate_cpu_us", aggregate_cpu},
                      {"batch", batch},
                      {"runner_cpu_us", cpu},
                      {"peak_rss_mib", mib}});
  Say("{:<13}: runner {:>7.0f}/s  bound {:>7.0f}/s  handler {:>6.0f}/s   {:.2f} of the bound, "
      "{:.1f}x the handler; batch {:.0f}, {:.1f} us of CPU, RSS {} MiB\n",
      Name(stream), rate, bound, handler, of_bound, times, batch, cpu, mib);
  Say("{:<13}: inbox: aggregate {:>7.0f}/s, {:.2f} of the bound, {:.1f} us of CPU\n", "", aggregate,
      aggregate_of_bound, aggregate_cpu);
}

void RunnerBench::Streams() {
  for (const Stream stream : {Stream::kCreate, Stream::kUpdate, Stream::kHotKey}) {
    if (!options_.stream.empty() && options_.stream != Name(stream)) continue;
    Rounds rounds;
    for (int i = 0; i < options_.rounds; ++i) rounds.push_back(Measure(stream));
    Tell(stream, rounds);
  }
}

// How much of its speed the runner keeps when its inbox is full. Empty and full in every round, in
// turn first and second: what the machine does meanwhile touches both.
void RunnerBench::FullInbox(Ids ids) {
  RunnerWorld full_world(options_.database, "full_state");
  std::vector<double> empty, full, kept;
  const auto run = [&](bool is_full) {
    const RunnerRun one = RunnerAlone(is_full ? full_world : world_, Stream::kCreate, ids,
                                      is_full ? options_.inbox_rows : 0);
    (is_full ? full : empty).push_back(one.rate);
  };
  for (int i = 0; i < options_.rounds; ++i) {
    run(/*is_full=*/i % 2 == 1);
    run(/*is_full=*/i % 2 == 0);
    kept.push_back(full.back() / empty.back());
  }
  full_world.Reset(0, ids);
  results_.push_back({{"ids", Name(ids)},
                      {"inbox_rows", options_.inbox_rows},
                      {"events", options_.events},
                      {"rounds", options_.rounds},
                      {"empty_per_s", static_cast<int64_t>(Median(empty))},
                      {"full_per_s", static_cast<int64_t>(Median(full))},
                      {"of_empty", Median(kept)},
                      {"of_empty_rounds", kept}});
  Say("{} rows in the inbox, {} ids: {:.2f} of the speed with none ({:.0f}/s, {:.0f}/s), least "
      "{:.2f}, most {:.2f}\n",
      options_.inbox_rows, Name(ids), Median(kept), Median(full), Median(empty),
      *std::min_element(kept.begin(), kept.end()), *std::max_element(kept.begin(), kept.end()));
}

void RunnerBench::Memory() {
  world_.Reset(0, Ids::kRandom);
  const RunnerRun run =
      ThroughRunner(world_, options_.outstanding, emulator_,
                    MakeEvents(Stream::kUpdate, Ids::kRandom, options_.memory_events, ++seed_));
  results_.push_back({{"backlog", options_.memory_events},
                      {"runner_per_s", static_cast<int64_t>(run.rate)},
                      {"peak_rss_mib", run.peak_kib / 1024}});
  Say("backlog of {}: {:.0f}/s, RSS {} MiB (the events' generator included)\n",
      options_.memory_events, run.rate, run.peak_kib / 1024);
}

int Main(const Options& options) {
  const Child emulator({ProgramFolder() + "/lockstep-emulator", "--port", "0"});
  if (emulator.address().empty()) {
    fmt::print(stderr, "bench: lockstep-emulator did not start\n");
    return 1;
  }
  RunnerBench bench(options, emulator.address());
  bench.Streams();
  if (options.inbox_rows > 0) {
    for (const Ids ids : {Ids::kRandom, Ids::kTimeOrdered}) {
      if (options.ids.empty() || options.ids == Name(ids)) bench.FullInbox(ids);
    }
  }
  if (options.memory_events > 0) bench.Memory();
  if (options.json) fmt::print("{}\n", bench.results().dump(2));
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"Events a second through the runner, beside the raw bound and the naive handler"};
  app.add_option("--database", options.database, "Postgres")
      ->envname("LOCKSTEP_TEST_PG")
      ->required();
  app.add_option("--events", options.events, "per stream")->capture_default_str();
  app.add_option("--handler-events", options.handler_events, "of the naive handler")
      ->capture_default_str();
  app.add_option("--inbox-rows", options.inbox_rows, "measure again with so many (10000000)")
      ->capture_default_str();
  app.add_option("--ids", options.ids, "of that inbox: one kind alone")
      ->check(CLI::IsMember({"random", "time-ordered"}));
  app.add_option("--outstanding", options.outstanding, "messages in hand")->capture_default_str();
  app.add_option("--memory-events", options.memory_events, "a backlog for the memory (1000000)")
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "of which the medians are told")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--stream", options.stream, "one alone")
      ->check(CLI::IsMember({"create-heavy", "update-heavy", "hot-key", "none"}));
  app.add_flag("--json", options.json, "one JSON array on stdout");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return lockstep::bench::Main(options);
}
