// HTTP routes: requests/s beside a bare libcurl-multi loop with the same concurrency against the
// same server, in one run; and memory under a backlog.
// needs: postgres
#include <curl/curl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/delay_server.h"
#include "platform/log/log.h"
#include "platform/metrics.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "publisher/service/publisher.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int> keys = {1, 100, 1000};
  int rows = 40'000;
  int rows_of_one_key = 4'000;
  int concurrency = 64;
  int delay_us = 1'000;
  int backlog = 1'000'000;  // 0 = that part is left out
  int repeats = 2;
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

constexpr char kPayload[] =
    R"({"title": "a video", "description": "of about two hundred bytes, as many events are: )"
    R"(long enough to be one, short enough not to be about bytes", "duration_seconds": 4711, )"
    R"("uploader": "somebody"})";

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// What libcurl does with nothing around it: so many handles, each sent again when it is answered.
double BareLoop(const std::string& url, int requests, int concurrency) {
  CURLM* const multi = curl_multi_init();
  curl_slist* headers = nullptr;
  for (const char* header :
       {"Expect:", "Content-Type: application/json",
        "Idempotency-Key: 00000000-0000-4000-8000-000000000001",
        "Lockstep-Event-Id: 00000000-0000-4000-8000-000000000001", "Lockstep-Event-Type: T",
        "Lockstep-Aggregate-Type: item", "Lockstep-Aggregate-Id: key-1", "Lockstep-Version: 1",
        "Lockstep-Schema-Version: 1", "Lockstep-Occurred-At: 2026-01-01T00:00:00.000000Z",
        "Lockstep-Topic: bench.events", "Lockstep-Sequence: 1"}) {
    headers = curl_slist_append(headers, header);
  }
  std::vector<CURL*> handles;
  int begun = 0;
  int answered = 0;
  const auto since = Clock::now();
  for (; begun < std::min(concurrency, requests); ++begun) {
    CURL* const easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, kPayload);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_multi_add_handle(multi, easy);
    handles.push_back(easy);
  }
  while (answered < requests) {
    int running = 0;
    curl_multi_perform(multi, &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      CURL* const easy = message->easy_handle;
      if (message->data.result != CURLE_OK) throw std::runtime_error("a request failed");
      ++answered;
      curl_multi_remove_handle(multi, easy);
      if (begun < requests) {
        curl_multi_add_handle(multi, easy);
        ++begun;
        running = -1;  // at once
      }
    }
    if (running >= 0 && answered < requests) curl_multi_poll(multi, nullptr, 0, 1'000, nullptr);
  }
  const double rate = requests / Seconds(since);
  for (CURL* easy : handles) {
    curl_multi_remove_handle(multi, easy);
    curl_easy_cleanup(easy);
  }
  curl_slist_free_all(headers);
  curl_multi_cleanup(multi);
  return rate;
}

int64_t PeakKb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

class World {
 public:
  World(const Options& options, std::string url) : options_(options), url_(std::move(url)) {
    const char* const address = std::getenv("LOCKSTEP_TEST_PG");
    if (address == nullptr) throw std::runtime_error("run it with scripts/bench routes");
    database_ = address;
    connection_ = Must(postgres::Connection::Open(
        {.url = database_, .statement_timeout = std::chrono::minutes(10)}));
    Must(postgres::Migrator(*connection_, "lockstep", sql::OutboxMigrations()).Up().status());
  }

  void Fill(int rows, int keys) {
    Must(connection_->Run("DROP SCHEMA IF EXISTS bench CASCADE"));
    Must(connection_->Run("DELETE FROM lockstep.outboxes"));
    Must(connection_->Run("SELECT lockstep.create_outbox('bench.outbox')"));
    Must(connection_->Run(fmt::format(
        "INSERT INTO bench.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, "
        "version, payload, content_type) SELECT lockstep.new_event_id(), 'bench.events', 'item', "
        "'key-' || i % {0}, 'T', i / {0} + 1, '{1}', 'application/json' FROM generate_series(0, "
        "{2}) i",
        keys, kPayload, rows - 1)));
    Must(connection_->Run("VACUUM ANALYZE bench.outbox"));
    Must(connection_->Run("CHECKPOINT"));
  }

  struct Run {
    double rate = 0;
    int64_t grown_kb = 0;  // the most memory, above that before
  };
  Run Drain(int rows) {
    publisher::PublisherConfig config;
    config.database = database_;
    config.instance = "bench";
    auto& table = config.tables.emplace_back();
    table.table = "bench.outbox";
    table.batch_size = 500;
    config.topics["bench.events"] = url_;
    config.routes.concurrency = options_.concurrency;
    config.routes.defaults.settings.allow_private = true;
    config.cleaner.enabled = false;
    publisher::NoBus none;
    MetricsRegistry metrics;
    publisher::PublisherService service(config, none, metrics);
    ForgetPeak();
    const int64_t before = PeakKb();
    const auto since = Clock::now();
    Must(service.Start());
    Must(service.WaitUntilDrained());
    Run run{rows / Seconds(since), PeakKb() - before};
    service.Stop();
    const int64_t left = Must(connection_->Number("SELECT count(*) FROM bench.outbox_pending"));
    if (left > 0) throw std::runtime_error(fmt::format("{} rows were not published", left));
    return run;
  }

 private:
  const Options options_;
  const std::string url_;
  std::string database_;
  std::unique_ptr<postgres::Connection> connection_;
};

int Main(Options options) {
  const DelayServer server{std::chrono::microseconds(options.delay_us)};  // before any thread
  log::Configure({.level = log::Level::kError});
  World world(options, server.url());
  nlohmann::ordered_json answer = {{"delay_us", options.delay_us},
                                   {"concurrency", options.concurrency},
                                   {"parts", nlohmann::ordered_json::array()}};
  for (const int keys : options.keys) {
    const int rows = keys == 1 ? options.rows_of_one_key : options.rows;
    double bare = 0;
    double route = 0;
    for (int i = 0; i < options.repeats; ++i) {  // in turns; the best of each
      bare = std::max(bare, BareLoop(server.url(), rows, std::min(keys, options.concurrency)));
      world.Fill(rows, keys);
      route = std::max(route, world.Drain(rows).rate);
    }
    answer["parts"].push_back(
        {{"keys", keys}, {"bare_per_s", bare}, {"route_per_s", route}, {"ratio", route / bare}});
    if (!options.json) {
      fmt::print("{:>5} keys: {:>8.0f} requests/s, bare libcurl {:>8.0f}: ratio {:.2f}\n", keys,
                 route, bare, route / bare);
    }
  }
  if (options.backlog > 0) {
    world.Fill(options.backlog, 1'000);
    const World::Run run = world.Drain(options.backlog);
    answer["backlog"] = {
        {"rows", options.backlog}, {"route_per_s", run.rate}, {"grown_kb", run.grown_kb}};
    if (!options.json) {
      fmt::print("{} rows of backlog: {:.0f} requests/s, {:.1f} MiB more memory at most\n",
                 options.backlog, run.rate, static_cast<double>(run.grown_kb) / 1024);
    }
  }
  if (options.json) fmt::print("{}\n", answer.dump(2));
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{"HTTP routes of the publisher beside a bare libcurl loop, against a local server"};
  app.add_option("--keys", options.keys, "numbers of keys to try")->capture_default_str();
  app.add_option("--rows", options.rows, "rows of a part")->capture_default_str();
  app.add_option("--rows-of-one-key", options.rows_of_one_key, "rows of the part with one key")
      ->capture_default_str();
  app.add_option("--concurrency", options.concurrency, "requests under way")->capture_default_str();
  app.add_option("--delay-us", options.delay_us, "how long an answer takes")->capture_default_str();
  app.add_option("--backlog", options.backlog, "rows of the part about memory; 0 = leave it out")
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "runs of each; the best counts")
      ->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::Main(options);
  } catch (const std::exception& fault) {
    fmt::print(stderr, "routes_bench: {}\n", fault.what());
    return 1;
  }
}
