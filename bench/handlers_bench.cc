// scripts/bench handlers (needs: postgres): events a second through a function in the database, as
// a share of the table that it stands for; requests a second to an endpoint that answers in a
// millisecond, beside a bare libcurl loop with the same concurrency; memory under a backlog.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/bare_curl.h"
#include "bench/child.h"
#include "bench/delay_server.h"
#include "bench/runner_contest.h"
#include "bench/runner_world.h"
#include "platform/log/log.h"

namespace lockstep::bench {
namespace {

struct Options {
  std::string database;
  int events = 200'000;
  int requests = 10'000;
  int concurrency = 16;
  int memory_events = 1'000'000;
  int memory_calls = 100'000;
  int rounds = 3;
  int outstanding = 4'000;
  bool json = false;
};

constexpr char kFunction[] = R"(
CREATE OR REPLACE FUNCTION bench.on_video(events {}.event[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO bench.video AS v (video_id, title, description, duration_seconds, version, updated_at)
  SELECT e.aggregate_id::uuid,
         (array_agg(e.data ->> 'title' ORDER BY e.version DESC) FILTER (WHERE e.data ? 'title'))[1],
         (array_agg(e.data ->> 'description' ORDER BY e.version DESC)
            FILTER (WHERE e.data ? 'description'))[1],
         (array_agg((e.data ->> 'duration_seconds')::bigint ORDER BY e.version DESC)
            FILTER (WHERE e.data ? 'duration_seconds'))[1],
         max(e.version), now()
    FROM unnest(events) AS e
   GROUP BY e.aggregate_id
   ORDER BY e.aggregate_id
  ON CONFLICT (video_id) DO UPDATE
     SET title = coalesce(EXCLUDED.title, v.title),
         description = coalesce(EXCLUDED.description, v.description),
         duration_seconds = coalesce(EXCLUDED.duration_seconds, v.duration_seconds),
         version = EXCLUDED.version, updated_at = EXCLUDED.updated_at
   WHERE v.version < EXCLUDED.version;
END $$)";

std::string HandlerFile(const std::string& call, int concurrency) {
  const bool http = call.starts_with("http");
  return fmt::format(
      "group: bench\nsubscription: bench.events.feed\nhandlers:\n  - {{name: h, call: '{}', "
      "events: [Created, Updated]{}}}\n",
      call, http ? fmt::format(", allow_private: true, concurrency: {}", concurrency) : "");
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// `count` events of `keys` aggregates, in turn.
std::vector<pubsub::Message> OfKeys(int count, int keys, int seed) {
  std::vector<pubsub::Message> events = MakeEvents(Stream::kCreate, Ids::kRandom, count, seed);
  std::map<int, int> versions;
  for (int i = 0; i < count; ++i) {
    pubsub::Message& event = events[static_cast<size_t>(i)];
    const std::string key = fmt::format("00000000-0000-4000-8000-{:012}", i % keys);
    event.ordering_key = key;
    event.attributes["aggregate_id"] = key;
    event.attributes["version"] = std::to_string(++versions[i % keys]);
  }
  return events;
}

class HandlersBench {
 public:
  HandlersBench(const Options& options, std::string emulator, std::string server)
      : options_(options), emulator_(std::move(emulator)), server_(std::move(server)) {
    world_.Execute(fmt::format(kFunction, world_.schema()));
  }

  void Functions() {
    for (const Stream stream : {Stream::kCreate, Stream::kUpdate}) {
      std::vector<double> table, function, share;
      for (int i = 0; i < options_.rounds; ++i) {
        const auto measure = [&](bool calls) {
          world_.Declare(calls ? HandlerFile("bench.on_video", 0) : "");
          world_.Reset(0, Ids::kRandom);
          const RunnerRun run =
              ThroughRunner(world_, options_.outstanding, emulator_,
                            MakeEvents(stream, Ids::kRandom, options_.events, ++seed_));
          (calls ? function : table).push_back(run.rate);
        };
        measure(i % 2 == 1);
        measure(i % 2 == 0);
        share.push_back(function.back() / table.back());
      }
      results_.push_back({{"what", "function"},
                          {"stream", Name(stream)},
                          {"table_per_s", static_cast<int64_t>(Median(table))},
                          {"function_per_s", static_cast<int64_t>(Median(function))},
                          {"of_table", Median(share)}});
      Say("function, {:<12}: {:>7.0f}/s, the table {:>7.0f}/s: {:.2f} of it\n", Name(stream),
          Median(function), Median(table), Median(share));
    }
  }

  void Endpoints() {
    for (const int keys : {1, 100, 1'000}) {
      const int at_once = std::min(keys, options_.concurrency);
      const int requests = keys == 1 ? options_.requests / 4 : options_.requests;
      std::vector<double> bare, handler, share;
      for (int i = 0; i < options_.rounds; ++i) {
        world_.Declare(HandlerFile(server_, options_.concurrency));
        bare.push_back(BareCurl(server_, requests, at_once, 150));
        world_.Reset(0, Ids::kRandom);
        handler.push_back(
            ThroughRunner(world_, options_.outstanding, emulator_, OfKeys(requests, keys, ++seed_))
                .rate);
        share.push_back(handler.back() / bare.back());
      }
      results_.push_back({{"what", "endpoint"},
                          {"keys", keys},
                          {"at_once", at_once},
                          {"bare_per_s", static_cast<int64_t>(Median(bare))},
                          {"handler_per_s", static_cast<int64_t>(Median(handler))},
                          {"of_bare", Median(share)}});
      Say("endpoint, {:>4} keys, {:>2} at once: {:>6.0f}/s, bare libcurl {:>6.0f}/s: {:.2f} of "
          "it\n",
          keys, at_once, Median(handler), Median(bare), Median(share));
    }
  }

  // What the runner has in its memory while so many wait. An endpoint is called with the first of
  // them; the rest stays where it is.
  void Memory() {
    const int backlog = options_.memory_events;
    if (backlog == 0) return;
    for (const bool http : {false, true}) {
      const std::string call = http ? server_ : "bench.on_video";
      world_.Declare(HandlerFile(call, options_.concurrency));
      world_.Reset(0, Ids::kRandom);
      const int enough = http ? std::min(backlog, options_.memory_calls) : backlog;
      const RunnerRun run =
          ThroughRunner(world_, options_.outstanding, emulator_,
                        http ? OfKeys(backlog, 1'000, ++seed_)
                             : MakeEvents(Stream::kUpdate, Ids::kRandom, backlog, ++seed_),
                        enough);
      const char* const what = http ? "endpoint" : "function";
      results_.push_back({{"what", "memory"},
                          {"handler", what},
                          {"backlog", backlog},
                          {"handled", enough},
                          {"per_s", static_cast<int64_t>(run.rate)},
                          {"peak_rss_mib", run.peak_kib / 1024}});
      Say("{}, backlog of {}, {} of it handled: {:.0f}/s, RSS {} MiB (what is left of the events' "
          "generator included)\n",
          what, backlog, enough, run.rate, run.peak_kib / 1024);
    }
  }

  const nlohmann::ordered_json& results() const { return results_; }

 private:
  template <typename... Words>
  void Say(fmt::format_string<Words...> text, Words&&... words) const {
    if (options_.json) return;
    fmt::print(text, std::forward<Words>(words)...);
    std::fflush(stdout);
  }

  const Options& options_;
  const std::string emulator_;
  const std::string server_;
  RunnerWorld world_{options_.database, "feed_state"};
  int seed_ = 0;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

int Main(const Options& options) {
  const DelayServer server(std::chrono::milliseconds(1));  // before there are threads
  const Child emulator({ProgramFolder() + "/lockstep-emulator", "--port", "0"});
  if (emulator.address().empty()) {
    fmt::print(stderr, "bench: lockstep-emulator did not start\n");
    return 1;
  }
  HandlersBench bench(options, emulator.address(), server.url());
  bench.Functions();
  bench.Endpoints();
  bench.Memory();
  if (options.json) fmt::print("{}\n", bench.results().dump(2));
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{
      "Events a second through handlers: functions beside tables, endpoints beside libcurl"};
  app.add_option("--database", options.database, "Postgres")
      ->envname("LOCKSTEP_TEST_PG")
      ->required();
  app.add_option("--events", options.events, "through functions and tables")->capture_default_str();
  app.add_option("--requests", options.requests, "to endpoints")->capture_default_str();
  app.add_option("--concurrency", options.concurrency, "requests under way")->capture_default_str();
  app.add_option("--memory-events", options.memory_events, "a backlog for the memory; 0 = none")
      ->capture_default_str();
  app.add_option("--memory-calls", options.memory_calls,
                 "of the backlog, how many an endpoint is called with")
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "of which the medians are told")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "one JSON array on stdout");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return lockstep::bench::Main(options);
}
