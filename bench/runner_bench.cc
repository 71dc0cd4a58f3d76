// scripts/bench runner (needs: postgres): events a second through the runner, beside the raw bound
// (the same statements from a bare loop, nothing decoded, no bus) and beside a handler that runs
// one transaction per message; four connections each, in one run.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/child.h"
#include "bench/runner_world.h"
#include "offsets/postgres_offset_provider.h"
#include "platform/log.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "runner/event_parser.h"
#include "runner/intake.h"

namespace lockstep::bench {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr int kConnections = 4;
constexpr int kBatch = 500;
constexpr char kTopic[] = "projects/bench/topics/bench.events";
constexpr char kSubscription[] = "projects/bench/subscriptions/bench.events.feed";

struct Options {
  std::string database;
  int events = 100'000;
  int handler_events = 10'000;
  int64_t inbox_rows = 0;
  int outstanding = 4'000;
  int memory_events = 0;
  int rounds = 1;
  std::string stream;  // empty = all
  bool json = false;
};

double Rate(int events, Clock::time_point start) {
  return events / Seconds(Clock::now() - start).count();
}

// Splits by key, as lanes do.
template <typename T, typename Key>
std::vector<std::vector<T*>> Share(std::vector<T>& all, const Key& key) {
  std::vector<std::vector<T*>> shares(kConnections);
  for (T& one : all) shares[std::hash<std::string>()(key(one)) % kConnections].push_back(&one);
  return shares;
}

template <typename Work>
void InParallel(const Work& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kConnections; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

[[noreturn]] void Die(const absl::Status& status) {
  fmt::print(stderr, "bench: {}\n", MessageOf(status));
  std::exit(1);
}

std::unique_ptr<postgres::Connection> Connect(const std::string& url) {
  auto connection = postgres::Connection::Open({.url = url});
  if (!connection.ok()) Die(connection.status());
  return *std::move(connection);
}

double RawBound(RunnerWorld& world, const std::vector<pubsub::Message>& events) {
  const auto declared = world.Declaration();
  const offsets::StateSchema schema(world.schema());
  const ConsumerGroup group("bench");
  offsets::PostgresOffsetProvider offsets(schema);
  const runner::Batch batch(schema, group, *declared.projector, offsets, {});
  const offsets::Epochs epochs(schema, group);
  const auto under = *epochs.LoadOrCreate(*Connect(world.database()), kSubscription, {}, "bench");
  std::vector<runner::Inbound> items;
  items.reserve(events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    items.push_back(runner::EventParser::Parse({.message = events[i],
                                                .message_id = MessageId(std::to_string(i)),
                                                .publish_time = lockstep::Clock::System().Now()},
                                               lockstep::Clock::System().Now()));
    runner::Intake::Map(*declared.projector, items.back());
  }
  const auto shares = Share(items, [](const runner::Inbound& item) { return item.ordering_key; });
  const auto start = Clock::now();
  InParallel([&](int lane) {
    const auto connection = Connect(world.database());
    auto epoch = under;
    const std::span<runner::Inbound* const> all(shares[lane]);
    for (size_t at = 0; at < all.size(); at += kBatch) {
      const auto part = all.subspan(at, std::min<size_t>(kBatch, all.size() - at));
      const auto done = batch.Run(*connection, epoch, {"bench", lane}, part);
      if (!done.ok()) Die(done.status());
      epoch.first_publish_time = WallTime();
    }
  });
  return Rate(static_cast<int>(events.size()), start);
}

// What most teams write.
double Handler(RunnerWorld& world, const std::vector<pubsub::Message>& events, int count) {
  std::vector<pubsub::Message> some(events.begin(), events.begin() + count);
  const auto shares = Share(some, [](const pubsub::Message& m) { return m.ordering_key; });
  const auto start = Clock::now();
  InParallel([&](int lane) {
    const auto connection = Connect(world.database());
    constexpr postgres::Statement kInbox{"i",
                                         "INSERT INTO feed_state.inbox (generation, event_id) "
                                         "VALUES (0, $1) ON CONFLICT DO NOTHING"};
    constexpr postgres::Statement kUpsert{
        "u",
        "INSERT INTO bench.video AS v (video_id, title, description, duration_seconds, version, "
        "updated_at) VALUES ($1, $2, $3, $4, $5, now()) ON CONFLICT (video_id) DO UPDATE SET title "
        "= "
        "coalesce(EXCLUDED.title, v.title), description = coalesce(EXCLUDED.description, "
        "v.description), version = EXCLUDED.version, updated_at = EXCLUDED.updated_at "
        "WHERE v.version < EXCLUDED.version"};
    constexpr postgres::Statement kOffset{
        "o",
        "INSERT INTO feed_state.offsets (group_name, instance, lane, subscription, message_id, "
        "publish_time, epoch) VALUES ('handler', 'h', $1, 's', $2, now(), 1) ON CONFLICT "
        "(group_name, instance, lane) DO UPDATE SET message_id = EXCLUDED.message_id, "
        "publish_time = EXCLUDED.publish_time"};
    for (const pubsub::Message* message : shares[lane]) {
      const auto payload = nlohmann::json::parse(message->data);
      const auto text = [&](const char* key) -> std::optional<std::string> {
        return payload.contains(key) ? std::optional(payload[key].get<std::string>())
                                     : std::nullopt;
      };
      auto transaction = connection->Begin();
      if (!transaction.ok()) Die(transaction.status());
      const std::string& id = message->attributes.at("event_id");
      postgres::Params row;
      row.Add(message->ordering_key).Add(text("title")).Add(text("description"));
      row.Add(payload.value("duration_seconds", int64_t{0})).Add(message->attributes.at("version"));
      if (!transaction->Execute(kInbox, postgres::Params().Add(id)).ok() ||
          !transaction->Execute(kUpsert, row).ok() ||
          !transaction->Execute(kOffset, postgres::Params().Add(lane).Add(id)).ok()) {
        Die(absl::UnknownError("the handler failed"));
      }
      if (const auto committed = transaction->Commit(); !committed.ok()) Die(committed);
    }
  });
  return Rate(count, start);
}

void PublishAll(pubsub::Transport& transport, const std::vector<pubsub::Message>& events) {
  const auto publisher = transport.NewPublisher({});
  std::mutex mu;
  std::condition_variable changed;
  int under_way = 0;
  for (size_t at = 0; at < events.size(); at += 1000) {
    const auto end = std::min(events.size(), at + 1000);
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return under_way < 10; });
    ++under_way;
    lock.unlock();
    publisher->Publish(kTopic,
                       std::vector<pubsub::Message>(events.begin() + static_cast<int64_t>(at),
                                                    events.begin() + static_cast<int64_t>(end)),
                       [&](const auto& results) {
                         for (const auto& result : results) {
                           if (!result.ok()) Die(result.status());
                         }
                         std::scoped_lock held(mu);
                         --under_way;
                         changed.notify_all();
                       });
  }
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return under_way == 0; });
}

int64_t ResidentKiB() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib;
  }
  return 0;
}

struct RunnerRun {
  double rate = 0;
  double batch = 0;  // messages per transaction
  int64_t peak_kib = 0;
  double cpu_us = 0;  // of this process, per message: the client's share of the machine
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A backlog on the emulator, then from opening the stream to the last commit.
RunnerRun ThroughRunner(RunnerWorld& world, const Options& options, const std::string& address,
                        std::vector<pubsub::Message> events) {
  const auto transport = *pubsub::MakeTransport({.emulator_host = address});
  const auto topic = transport->admin().CreateTopic({.name = kTopic});
  if (!topic.ok()) Die(topic.status());
  const auto subscription = transport->admin().CreateSubscription(
      {.name = kSubscription, .topic = kTopic, .ordering = true});
  if (!subscription.ok()) Die(subscription.status());
  const auto count = static_cast<int64_t>(events.size());
  PublishAll(*transport, events);
  events = {};
  malloc_trim(0);  // what the generator left behind is not the runner's

  MetricsRegistry metrics;
  const runner::GroupEnvironment environment{.database = world.database(),
                                             .state_schema = world.schema(),
                                             .instance = "bench",
                                             .transport = *transport,
                                             .metrics = metrics};
  runner::GroupOptions group_options;
  group_options.name = "bench";
  group_options.subscription = kSubscription;
  group_options.lanes = kConnections;
  group_options.max_batch = kBatch;
  group_options.max_outstanding_messages = options.outstanding;
  runner::Group group(group_options, std::move(world.Declaration().projector), environment);
  RunnerRun run;
  const auto start = Clock::now();
  const double cpu = CpuSeconds();
  if (!group.Start().ok()) return run;
  while (true) {
    const auto counts = group.status().counts;
    run.peak_kib = std::max(run.peak_kib, ResidentKiB());
    if (counts.batches > 0) run.batch = static_cast<double>(counts.applied) / counts.batches;
    if (counts.applied + counts.superseded + counts.dead >= count) break;
    std::this_thread::sleep_for(Millis(5));
  }
  run.rate = Rate(static_cast<int>(count), start);
  run.cpu_us = (CpuSeconds() - cpu) * 1e6 / static_cast<double>(count);
  group.Stop();
  static_cast<void>(transport->admin().DeleteSubscription(kSubscription));
  static_cast<void>(transport->admin().DeleteTopic(kTopic));
  return run;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::ordered_json Measure(RunnerWorld& world, const Options& options,
                               const std::string& address, Stream stream, Ids ids,
                               int64_t inbox_rows) {
  std::vector<double> bounds, handlers, rates;
  RunnerRun run;
  // Side by side in every round: what the machine does meanwhile touches all of them.
  for (int round = 0; round < options.rounds; ++round) {
    const int seed = 7 + 3 * round;
    world.Reset(inbox_rows, ids);
    bounds.push_back(RawBound(world, MakeEvents(stream, ids, options.events, seed)));
    world.Reset(inbox_rows, ids);
    run = ThroughRunner(world, options, address, MakeEvents(stream, ids, options.events, seed + 1));
    rates.push_back(run.rate);
    if (inbox_rows > 0) continue;  // the handler's pace is no question there
    world.Reset(0, ids);
    const int few = std::min(options.handler_events, options.events);
    handlers.push_back(Handler(world, MakeEvents(stream, ids, few, seed + 2), few));
  }
  const double bound = Median(bounds);
  const double handler = handlers.empty() ? 0 : Median(handlers);
  run.rate = Median(rates);
  nlohmann::ordered_json result = {{"stream", Name(stream)},
                                   {"ids", ids == Ids::kRandom ? "random" : "time-ordered"},
                                   {"inbox_rows", inbox_rows},
                                   {"events", options.events},
                                   {"runner_per_s", static_cast<int64_t>(run.rate)},
                                   {"bound_per_s", static_cast<int64_t>(bound)},
                                   {"handler_per_s", static_cast<int64_t>(handler)},
                                   {"of_bound", run.rate / bound},
                                   {"times_handler", handler > 0 ? run.rate / handler : 0},
                                   {"batch", run.batch},
                                   {"runner_cpu_us", run.cpu_us},
                                   {"peak_rss_mib", run.peak_kib / 1024}};
  if (!options.json) {
    fmt::print(
        "{:<13} {:<12} inbox {:>9}: runner {:>7.0f}/s  bound {:>7.0f}/s  handler {:>6.0f}/s"
        "   {:.2f} of the bound, {:.1f}x the handler; batch {:.0f}, {:.1f} us of CPU, RSS {} MiB\n",
        Name(stream), ids == Ids::kRandom ? "random" : "time-ordered", inbox_rows, run.rate, bound,
        handler, run.rate / bound, handler > 0 ? run.rate / handler : 0, run.batch, run.cpu_us,
        run.peak_kib / 1024);
    std::fflush(stdout);
  }
  return result;
}

// How much of its speed the runner keeps when its inbox is full.
void MeasureFlat(RunnerWorld& world, const Options& options, const std::string& address,
                 nlohmann::ordered_json& results) {
  for (const Ids ids : {Ids::kRandom, Ids::kTimeOrdered}) {
    const auto empty = Measure(world, options, address, Stream::kCreate, ids, 0);
    auto full = Measure(world, options, address, Stream::kCreate, ids, options.inbox_rows);
    full["of_empty"] = full["runner_per_s"].get<double>() / empty["runner_per_s"].get<double>();
    if (!options.json) {
      fmt::print("{} rows in the inbox, {} ids: {:.2f} of the speed with none\n",
                 options.inbox_rows, ids == Ids::kRandom ? "random" : "time-ordered",
                 full["of_empty"].get<double>());
    }
    results.push_back(empty);
    results.push_back(full);
  }
}

int Main(const Options& options) {
  const Child emulator({ProgramFolder() + "/lockstep-emulator", "--port", "0"});
  if (emulator.address().empty()) Die(absl::NotFoundError("lockstep-emulator did not start"));
  RunnerWorld world(options.database);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Stream stream : {Stream::kCreate, Stream::kUpdate, Stream::kHotKey}) {
    if (!options.stream.empty() && options.stream != Name(stream)) continue;
    results.push_back(Measure(world, options, emulator.address(), stream, Ids::kRandom, 0));
  }
  if (options.inbox_rows > 0) MeasureFlat(world, options, emulator.address(), results);
  if (options.memory_events > 0) {
    world.Reset(0, Ids::kRandom);
    const RunnerRun run =
        ThroughRunner(world, options, emulator.address(),
                      MakeEvents(Stream::kUpdate, Ids::kRandom, options.memory_events, 9));
    results.push_back({{"backlog", options.memory_events},
                       {"runner_per_s", static_cast<int64_t>(run.rate)},
                       {"peak_rss_mib", run.peak_kib / 1024}});
    if (!options.json) {
      fmt::print("backlog of {}: {:.0f}/s, RSS {} MiB (the events' generator included)\n",
                 options.memory_events, run.rate, run.peak_kib / 1024);
    }
  }
  if (options.json) fmt::print("{}\n", results.dump(2));
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
