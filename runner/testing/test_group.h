#pragma once

#include <functional>
#include <memory>
#include <string>

#include "platform/metrics.h"
#include "runner/group/group.h"
#include "runner/testing/test_projector.h"
#include "tests/support/fake_bus.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {

// A uuid that is readable in a failing test: its last digits are `number`.
std::string Uuid(int number);

// One event as a publisher would send it.
struct TestEvent {
  std::string id = "k1";
  int64_t version = 1;
  std::string payload = R"({"set":{"a":"x"}})";
  std::string event_id = {};  // empty = made of id and version
  bool ordered = true;
  std::string type = "item";
  bool snapshot = false;

  pubsub::Message Message() const;
};

// {"set":{"a":"<value>"}}, replacing.
std::string Replace(const std::string& value);
// {"merge":true,"set":{"<field>":"<value>"}}.
std::string Merge(const std::string& field, const std::string& value);
// An event whose application runs `sql` first.
std::string Running(const std::string& sql);

// A merge, which waits for its predecessor, and runs `sql` first when it is applied.
std::string MergeRunning(const std::string& sql);
inline constexpr char kDivide[] = "SELECT 1 / 0";
// How often an older version was applied after a newer one.
inline constexpr char kOutOfOrder[] =
    "SELECT count(*) FROM (SELECT version < lag(version) OVER (PARTITION BY id ORDER BY seq) AS bad"
    " FROM rm.history) h WHERE bad";

// Publishes and answers when the bus has all of them.
void PublishAndWait(pubsub::Publisher& publisher, const std::string& topic,
                    std::vector<pubsub::Message> messages);

// A database with the state schema and the test projector's tables, a bus in memory with one topic
// and subscription, and groups on it.
class GroupWorld {
 public:
  explicit GroupWorld(bool ordered = true, const std::string& dead_letter_topic = "");
  ~GroupWorld();

  GroupOptions options;      // lanes and the like, for groups made afterwards
  std::string database_url;  // of groups made afterwards; empty = the database itself
  bool may_park = true;
  // In place of a TestProjector.
  std::function<std::unique_ptr<projections::Projector>()> make_projector;
  Millis look_for_left{30'000};
  Millis drain{8'000};
  Millis poll{50};       // how often a group's thread looks at the epoch
  SeekHooks seek_hooks;  // of the next group
  state::OffsetProvider* offsets = nullptr;

  std::unique_ptr<Group> NewGroup(const std::string& instance = "one");
  void Publish(const std::vector<TestEvent>& events);
  void PublishMessage(pubsub::Message message);

  // Waits until the subscription is empty: everything published is acked.
  bool AwaitDrained();
  bool Await(const std::function<bool()>& condition);

  int64_t DeadLetters();
  int64_t Count(const std::string& sql);
  std::string Value(const std::string& sql);

  testing::TestDatabase database;
  testing::FakeBus bus;
  MetricsRegistry metrics;

 private:
  std::vector<std::unique_ptr<GroupEnvironment>> environments_;
};

inline constexpr char kSubscription[] = "projects/p/subscriptions/items.feed";
inline constexpr char kTopic[] = "projects/p/topics/items";

}  // namespace lockstep::runner
