#include "runner/testing/test_group.h"

#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::runner {

std::string Uuid(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }

std::string Replace(const std::string& value) {
  return nlohmann::json({{"set", {{"a", value}}}}).dump();
}
std::string Merge(const std::string& field, const std::string& value) {
  return nlohmann::json({{"merge", true}, {"set", {{field, value}}}}).dump();
}
std::string Running(const std::string& sql) {
  return nlohmann::json({{"sql", sql}, {"set", {{"a", "ran"}}}}).dump();
}

std::string MergeRunning(const std::string& sql) {
  return nlohmann::json({{"merge", true}, {"sql", sql}, {"set", {{"a", "ran"}}}}).dump();
}

pubsub::Message TestEvent::Message() const {
  const size_t hash = std::hash<std::string>()(type + "/" + id);
  pubsub::Message message;
  message.data = payload;
  message.ordering_key = ordered ? id : "";
  message.attributes = {
      {"event_id", event_id.empty() ? fmt::format("{:08x}-0000-4000-8000-{:012}",
                                                  static_cast<uint32_t>(hash), version)
                                    : event_id},
      {"event_type", "ItemChanged"},
      {"aggregate_type", type},
      {"aggregate_id", id},
      {"version", fmt::format("{}", version)},
      {"schema_version", "1"},
      {"occurred_at", FormatTimestamp(Clock::System().Now())},
      {"content_type", "application/json"},
      {"topic", "items.item.changed.v1"},
      {"sequence", fmt::format("{}", version)}};
  if (snapshot) message.attributes[kKindAttribute] = kKindSnapshot;
  return message;
}

void PublishAndWait(pubsub::Publisher& publisher, const std::string& topic,
                    std::vector<pubsub::Message> messages) {
  const auto done = std::make_shared<std::promise<void>>();
  publisher.Publish(topic, std::move(messages), [done](const auto& results) {
    for (const auto& result : results) EXPECT_TRUE(result.ok());
    done->set_value();
  });
  done->get_future().wait();
}

GroupWorld::GroupWorld(bool ordered, const std::string& dead_letter_topic) {
  options.name = "feed";
  options.subscription = kSubscription;
  options.lanes = 2;
  const auto connection = database.Connect();
  postgres::Migrator migrator(*connection, "feed_state", sql::StateMigrations());
  EXPECT_TRUE(migrator.Up().ok());
  database.Run(TestProjector::kTables);
  EXPECT_TRUE(bus.admin().CreateTopic({.name = kTopic}).ok());
  EXPECT_TRUE(bus.admin()
                  .CreateSubscription({.name = kSubscription,
                                       .topic = kTopic,
                                       .ordering = ordered,
                                       .dead_letter_topic = dead_letter_topic})
                  .ok());
}

GroupWorld::~GroupWorld() = default;

std::unique_ptr<Group> GroupWorld::NewGroup(const std::string& instance) {
  environments_.emplace_back(
      new GroupEnvironment{.database = database_url.empty() ? database.url() : database_url,
                           .state_schema = "feed_state",
                           .instance = instance,
                           .transport = bus,
                           .metrics = metrics,
                           .drain = drain,
                           .poll = poll,
                           .retry_halt = Millis(50),
                           .look_for_left = look_for_left,
                           .offsets = offsets,
                           .seek_hooks = std::exchange(seek_hooks, {})});
  auto test_projector = std::make_unique<TestProjector>();
  test_projector->may_park = may_park;
  std::unique_ptr<projections::Projector> projector = std::move(test_projector);
  if (make_projector) projector = make_projector();
  auto group = std::make_unique<Group>(options, std::move(projector), *environments_.back());
  EXPECT_TRUE(group->Start().ok());
  return group;
}

void GroupWorld::PublishMessage(pubsub::Message message) {
  const auto publisher = bus.NewPublisher({});
  PublishAndWait(*publisher, kTopic, {std::move(message)});
}

void GroupWorld::Publish(const std::vector<TestEvent>& events) {
  for (const TestEvent& event : events) PublishMessage(event.Message());
}

bool GroupWorld::AwaitDrained() {
  return bus.Await([&] { return bus.Backlog(kSubscription) == 0; });
}

bool GroupWorld::Await(const std::function<bool()>& condition) {
  // The database tells nobody, so it is asked again and again.
  const auto deadline = Clock::System().Steady() + std::chrono::seconds(20);
  while (!condition()) {
    if (Clock::System().Steady() > deadline) return false;
    std::this_thread::sleep_for(Millis(10));
  }
  return true;
}

int64_t GroupWorld::DeadLetters() { return Count("SELECT count(*) FROM feed_state.dead_letters"); }
int64_t GroupWorld::Count(const std::string& sql) { return database.QueryInt(sql); }
std::string GroupWorld::Value(const std::string& sql) {
  const auto rows = database.Query(sql);
  return rows.empty() ? "" : std::string(rows.Text(0, 0));
}

}  // namespace lockstep::runner
