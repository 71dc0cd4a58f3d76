#include "bench/runner_contest.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/machine_cpu.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "runner/message/inbound.h"
#include "state/positions/offsets.h"

namespace lockstep::bench {
namespace {

using Seconds = std::chrono::duration<double>;
using Steady = std::chrono::steady_clock;

constexpr int kConnections = 4;
constexpr int kBatch = 500;
constexpr char kTopic[] = "projects/bench/topics/bench.events";
constexpr char kSubscription[] = "projects/bench/subscriptions/bench.events.feed";

double Rate(int64_t events, Steady::time_point start) {
  return static_cast<double>(events) / Seconds(Steady::now() - start).count();
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

std::unique_ptr<postgres::Connection> Connect(const std::string& url,
                                              const std::string& settings = "") {
  auto connection = postgres::Connection::Open({.url = url, .settings = settings});
  if (!connection.ok()) Die(connection.status());
  return *std::move(connection);
}

void PublishAll(pubsub::Transport& transport, const std::vector<pubsub::Message>& events) {
  const auto publisher = transport.NewPublisher({});
  std::mutex mu;
  std::condition_variable changed;
  int under_way = 0;
  for (size_t at = 0; at < events.size(); at += 1000) {
    const auto end = std::min(events.size(), at + 1000);
    std::unique_lock lock(mu);  // calls share keys: one at a time
    changed.wait(lock, [&] { return under_way == 0; });
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

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A topic and its subscription, gone with it.
class Road {
 public:
  explicit Road(const std::string& address)
      : transport_(*pubsub::MakeTransport({.emulator_host = address})) {
    const auto topic = transport_->admin().CreateTopic({.name = kTopic});
    if (!topic.ok()) Die(topic.status());
    const auto subscription = transport_->admin().CreateSubscription(
        {.name = kSubscription, .topic = kTopic, .ordering = true});
    if (!subscription.ok()) Die(subscription.status());
  }
  ~Road() {
    static_cast<void>(transport_->admin().DeleteSubscription(kSubscription));
    static_cast<void>(transport_->admin().DeleteTopic(kTopic));
  }
  Road(const Road&) = delete;
  Road& operator=(const Road&) = delete;

  pubsub::Transport& transport() { return *transport_; }

 private:
  std::unique_ptr<pubsub::Transport> transport_;
};

RunnerRun RunGroup(RunnerWorld& world, int outstanding, pubsub::Transport& transport, int64_t count,
                   const Send& send) {
  MetricsRegistry metrics;
  const runner::GroupEnvironment environment{.database = world.database(),
                                             .state_schema = world.schema(),
                                             .instance = "bench",
                                             .transport = transport,
                                             .metrics = metrics};
  runner::GroupOptions group_options;
  group_options.name = "bench";
  group_options.subscription = kSubscription;
  group_options.lanes = kConnections;
  group_options.max_batch = kBatch;
  group_options.max_outstanding_messages = outstanding;
  if (world.by_versions()) {
    group_options.on_gap = runner::OnGap::kPark;
    group_options.inbox = runner::InboxMode::kAggregate;
  }
  runner::Group group(group_options, std::move(world.Declaration().projector), environment);
  RunnerRun run;
  const auto start = Steady::now();
  const double cpu = CpuSeconds();
  const MachineCpu machine(world.database());
  if (!group.Start().ok()) return run;
  const auto sender = send ? send(transport, kTopic) : nullptr;
  while (true) {
    const auto counts = group.status().counts;
    run.peak_kib = std::max(run.peak_kib, ResidentKiB());
    if (counts.batches > 0) run.batch = static_cast<double>(counts.applied) / counts.batches;
    if (counts.applied + counts.superseded + counts.dead >= count) break;
    std::this_thread::sleep_for(Millis(5));
  }
  run.rate = Rate(count, start);
  run.cpu_us = (CpuSeconds() - cpu) * 1e6 / static_cast<double>(count);
  run.machine_us = machine.Seconds() * 1e6 / static_cast<double>(count);
  group.Stop();
  return run;
}

}  // namespace

double RawBound(RunnerWorld& world, const std::vector<pubsub::Message>& events) {
  const auto declared = world.Declaration();
  const state::Schema schema(world.schema());
  const ConsumerGroup group("bench");
  state::Offsets offsets(schema);
  const runner::Batch batch(schema, group, *declared.projector, offsets, {});
  const state::Epochs epochs(schema, group);
  const auto under = *epochs.LoadOrCreate(*Connect(world.database()), kSubscription, {}, "bench");
  std::vector<runner::Inbound> items;
  items.reserve(events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    const WallTime now = Clock::System().Now();
    const pubsub::Delivery delivery{
        .message = events[i], .message_id = MessageId(std::to_string(i)), .publish_time = now};
    runner::MapEvent(*declared.projector, items.emplace_back(delivery, now));
  }
  const auto shares = Share(items, [](const runner::Inbound& item) { return item.ordering_key; });
  const auto start = Steady::now();
  InParallel([&](int lane) {
    const auto connection = Connect(world.database(), postgres::kPlannedOnce);
    auto epoch = under;
    const std::span<runner::Inbound* const> all(shares[lane]);
    for (size_t at = 0; at < all.size(); at += kBatch) {
      const auto part = all.subspan(at, std::min<size_t>(kBatch, all.size() - at));
      const auto done = batch.Run(*connection, epoch, {"bench", lane}, part);
      if (!done.ok()) Die(done.status());
      epoch.first_publish_time = WallTime();
    }
  });
  return Rate(static_cast<int64_t>(events.size()), start);
}

double Handler(RunnerWorld& world, std::vector<pubsub::Message> events) {
  const auto shares = Share(events, [](const pubsub::Message& m) { return m.ordering_key; });
  const auto start = Steady::now();
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
      if (!transaction->Execute(kInbox, id).ok() || !transaction->Execute(kUpsert, row).ok() ||
          !transaction->Execute(kOffset, lane, id).ok()) {
        Die(absl::UnknownError("the handler failed"));
      }
      if (const auto committed = transaction->Commit(); !committed.ok()) Die(committed);
    }
  });
  return Rate(static_cast<int64_t>(events.size()), start);
}

RunnerRun ThroughRunner(RunnerWorld& world, int outstanding, const std::string& address,
                        std::vector<pubsub::Message> events, std::optional<int64_t> enough) {
  Road road(address);
  const auto count = enough.value_or(static_cast<int64_t>(events.size()));
  PublishAll(road.transport(), events);
  events = {};
  malloc_trim(0);  // what the generator left behind is not the runner's
  return RunGroup(world, outstanding, road.transport(), count, nullptr);
}

RunnerRun ThroughRunner(RunnerWorld& world, int outstanding, const std::string& address,
                        int64_t count, const Send& send) {
  Road road(address);
  return RunGroup(world, outstanding, road.transport(), count, send);
}

}  // namespace lockstep::bench
