#include "runner/testing/wire_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::runner {

WireWorld::WireWorld(pubsub::Subscription shape) : server({.clock = &clock}) {
  options.name = "feed";
  options.subscription = kSubscription;
  options.lanes = 2;
  url = database.url();
  const auto connection = database.Connect();
  EXPECT_TRUE(postgres::Migrator(*connection, "feed_state", sql::StateMigrations()).Up().ok());
  database.Run(TestProjector::kTables);
  EXPECT_TRUE(server.Start().ok());
  transport = *pubsub::MakeTransport({.emulator_host = server.address()});
  shape.name = kSubscription;
  shape.topic = kTopic;
  EXPECT_TRUE(transport->admin().CreateTopic({.name = kTopic}).ok());
  EXPECT_TRUE(transport->admin().CreateSubscription(shape).ok());
  publisher_ = transport->NewPublisher({});
}

WireWorld::~WireWorld() = default;

std::unique_ptr<Group> WireWorld::NewGroup(const std::string& instance) {
  environments_.emplace_back(new GroupEnvironment{.database = url,
                                                  .state_schema = "feed_state",
                                                  .instance = instance,
                                                  .transport = *transport,
                                                  .metrics = metrics,
                                                  .poll = Millis(50),
                                                  .retry_halt = Millis(50)});
  auto group =
      std::make_unique<Group>(options, std::make_unique<TestProjector>(), *environments_.back());
  EXPECT_TRUE(group->Start().ok());
  return group;
}

void WireWorld::Publish(const std::vector<TestEvent>& events) {
  std::vector<pubsub::Message> messages;
  messages.reserve(events.size());
  for (const TestEvent& event : events) messages.push_back(event.Message());
  std::mutex mu;
  std::condition_variable changed;
  bool done = false;
  publisher_->Publish(kTopic, std::move(messages), [&](const auto& results) {
    for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status();
    std::lock_guard lock(mu);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return done; });
}

bool WireWorld::Await(const std::function<bool()>& condition) {
  // Neither the database nor the emulator tells anybody, so they are asked again and again.
  const auto deadline = Clock::System().Steady() + std::chrono::seconds(30);
  while (!condition()) {
    if (Clock::System().Steady() > deadline) return false;
    std::this_thread::sleep_for(Millis(10));
  }
  return true;
}

int64_t WireWorld::Disorder() {
  return Count(
      "SELECT count(*) FROM (SELECT version, lag(version) OVER (PARTITION BY id ORDER BY seq) AS "
      "before FROM rm.history) h WHERE version <= before");
}

std::vector<TestEvent> Events(int keys, int versions, bool ordered, int from_version) {
  std::vector<TestEvent> events;
  for (int version = from_version; version < from_version + versions; ++version) {
    for (int key = 0; key < keys; ++key) {
      events.push_back({.id = fmt::format("k{}", key),
                        .version = version,
                        .payload = Merge(version % 2 == 0 ? "a" : "b", std::to_string(version)),
                        .ordered = ordered});
    }
  }
  return events;
}

}  // namespace lockstep::runner
