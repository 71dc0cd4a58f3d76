#include "operations/testing/rebuild_fixture.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "platform/daemon/service_thread.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "projections/declare/group_file.h"
#include "runner/testing/test_group.h"
#include "sql/migrations.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

constexpr char kGroupFile[] = R"(
group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    updated_at: updated_at
    events:
      ItemChanged: {replace: {a: a}}
  - name: counters
    table: rm.counters
    key: id
    events:
      ItemChanged: {increment: {n: {value: 1}}}
)";

constexpr char kTables[] = R"(
CREATE SCHEMA rm;
CREATE TABLE rm.items (id text PRIMARY KEY, version bigint NOT NULL CHECK (version > 0), a text,
                       updated_at timestamptz NOT NULL, note text);
CREATE INDEX items_by_a ON rm.items (a);
CREATE TABLE rm.counters (id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0);)";

}  // namespace

RebuildWorld::RebuildWorld(bool history, const std::string& group_file)
    : counts_(group_file.empty()) {
  EXPECT_TRUE(server.Start().ok());
  transport = *pubsub::MakeTransport({.emulator_host = server.address()});
  publisher_ = transport->NewPublisher({});
  pubsub::Topic topic{.name = kTopic};
  if (history) topic.retention = std::chrono::hours(24);
  EXPECT_TRUE(transport->admin().CreateTopic(topic).ok());
  const auto made = transport->admin().CreateSubscription(
      {.name = kSubscription, .topic = kTopic, .ordering = true, .retain_acked = true});
  EXPECT_TRUE(made.ok()) << made.status();
  const auto connection = database.Connect();
  EXPECT_TRUE(postgres::Migrator(*connection, "feed_state", sql::StateMigrations()).Up().ok());
  database.Run(kTables);
  file_ = (std::filesystem::temp_directory_path() / (database.name() + ".yaml")).string();
  std::ofstream(file_) << (counts_ ? kGroupFile : group_file);
  options.name = "feed";
  options.subscription = kSubscription;
  options.lanes = 2;
  options.ack_fence = Millis(200);
  options.ack_deadline = Millis(10'000);  // a release that the fence cuts off waits no longer
}

RebuildWorld::~RebuildWorld() {
  StopLoad();
  groups_.clear();
  std::filesystem::remove(file_);
}

void RebuildWorld::StartRunner(const std::string& instance) {
  environments_.emplace_back(new runner::GroupEnvironment{.database = database.url(),
                                                          .state_schema = "feed_state",
                                                          .instance = instance,
                                                          .transport = *transport,
                                                          .metrics = metrics_,
                                                          .poll = Millis(50),
                                                          .retry_halt = Millis(100)});
  auto loaded =
      projections::LoadGroup(file_, {.table_suffix = "", .state_schema = "feed_state", .code = {}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  groups_.push_back(std::make_unique<runner::Group>(options, std::move(loaded->projector),
                                                    *environments_.back()));
  ASSERT_TRUE(groups_.back()->Start().ok());
}

void RebuildWorld::Publish(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    before_publish(version_ + 1);
    std::vector<pubsub::Message> messages;
    for (int k = 0; k < kKeys; ++k) {
      messages.push_back(
          TestEvent{.id = fmt::format("k{}", k),
                    .version = version_ + 1,
                    .payload = fmt::format(R"({{"id":"k{}","a":"{}"}})", k, version_ + 1)}
              .Message());
    }
    Send(std::move(messages));
    ++version_;
  }
}

void RebuildWorld::Send(std::vector<pubsub::Message> messages) {
  PublishAndWait(*publisher_, kTopic, std::move(messages));
}

void RebuildWorld::Declare(const std::string& group_file) { std::ofstream(file_) << group_file; }

void RebuildWorld::PretendRunner(const std::string& instance, const std::string& mapping) {
  database.Run(
      fmt::format("INSERT INTO feed_state.instances (group_name, instance, epoch, lanes, mapping) "
                  "VALUES ('feed', '{}', 1, 1, '{}')",
                  instance, mapping));
}

bool RebuildWorld::Await(const std::string& sql, int64_t wanted) {
  const auto deadline = Clock::System().Steady() + std::chrono::seconds(30);
  while (database.QueryInt(sql) != wanted) {
    if (Clock::System().Steady() > deadline) return false;
    std::this_thread::sleep_for(Millis(10));
  }
  return true;
}

bool RebuildWorld::Settle() {
  const int64_t version = version_;
  return Await(fmt::format("SELECT count(*) FROM rm.items WHERE version = {} AND a = '{}'", version,
                           version),
               kKeys) &&
         (!counts_ ||
          Await(fmt::format("SELECT count(*) FROM rm.counters WHERE n = {}", version), kKeys));
}

void RebuildWorld::Read() {
  const auto connection = database.Connect();
  const auto complain = [&](const std::string& what) {
    std::lock_guard lock(mu_);
    complaints_.push_back(what);
  };
  int64_t least = least_;
  while (!stop_) {
    // Prepared, so that a plan is kept over the swap; and plain.
    for (const bool prepared : {true, false}) {
      constexpr std::string_view kItems =
          "SELECT count(*), coalesce(min(i.version), 0) FROM rm.items i";
      constexpr std::string_view kBoth =
          "SELECT count(*), coalesce(min(i.version), 0), count(c.n) FROM rm.items i JOIN "
          "rm.counters c USING (id)";
      const std::string_view sql = counts_ ? kBoth : kItems;
      const auto rows = prepared ? connection->Execute(postgres::Statement{"read", sql})
                                 : connection->Execute(sql);
      if (!rows.ok()) {
        complain(std::string(MessageOf(rows.status())));
        return;
      }
      if (rows->Int(0, 0) != kKeys) complain(fmt::format("{} rows", rows->Int(0, 0)));
      if (rows->Int(0, 1) < (step_back_ ? least_.load() : least)) {
        complain(fmt::format("version {} of at least {}", rows->Int(0, 1), least));
      }
      least = step_back_ ? least_.load() : std::max(least, rows->Int(0, 1));
      ++reads_;
      std::this_thread::sleep_for(Millis(1));  // the cores are the runners' too
    }
  }
}

void RebuildWorld::StartLoad() {
  least_ = database.QueryInt("SELECT min(version) FROM rm.items");
  stop_ = false;
  for (int i = 0; i < 2; ++i) load_.emplace_back([this] { Read(); });
  load_.emplace_back([this] {
    while (!stop_) {
      Publish(1);
      std::this_thread::sleep_for(Millis(50));
    }
  });
}

void RebuildWorld::StopLoad() {
  stop_ = true;
  for (std::thread& thread : load_) thread.join();
  load_.clear();
}

std::vector<std::string> RebuildWorld::complaints() {
  std::lock_guard lock(mu_);
  return complaints_;
}

RebuildWorld::Driver RebuildWorld::NewDriver(const RebuildStep& at) {
  Driver driver;
  driver.connection = database.Connect();
  if (!source_url.empty()) driver.source = *postgres::Connection::Open({.url = source_url});
  driver.rebuild = std::make_unique<Rebuild>(
      Rebuild::Parts{.database = database.url(),
                     .state_schema = "feed_state",
                     .instance = "rebuild",
                     .transport = *transport,
                     .options = options,
                     .file = file_,
                     .backfills = backfills,
                     .source = driver.source.get(),
                     .ignored_columns = ignored_columns,
                     .poll = Millis(20),
                     .quiet = Millis(300),
                     .patience = Millis(10'000),
                     .restarts = restarts,
                     .at = at},
      *driver.connection,
      Rebuild::Listener{.progress = [](int64_t, int64_t) {},
                        .note = [this](const std::string& text) { notes.push_back(text); }});
  return driver;
}

absl::Status RebuildWorld::Begin(Rebuild& rebuild) {
  ASSIGN_OR_RETURN(const auto plan,
                   rebuild.Plan({.seek = {.kind = state::SeekTarget::Kind::kEarliest},
                                 .keep_old = std::chrono::hours(24),
                                 .operator_name = "ada",
                                 .reason = "a test"}));
  return rebuild.Begin(plan);
}

absl::Status RebuildWorld::Resume(Rebuild& rebuild, bool despite_differences) {
  std::stop_source stop;
  std::jthread patience([&](const std::stop_token& done) {
    if (!SleepUnlessStopped(done, Millis(60'000))) stop.request_stop();
  });
  return rebuild.Resume(despite_differences, stop.get_token());
}

std::string RebuildWorld::Subscription() {
  const auto rows = database.Query(
      "SELECT subscription FROM feed_state.slots s JOIN feed_state.consumer_groups g ON "
      "g.group_name = s.group_name AND g.active_slot = s.slot WHERE g.group_name = 'feed'");
  return std::string(rows.Text(0, 0));
}

std::string RebuildWorld::Orphans() {
  std::string found;
  const auto rows = database.Query(R"(
    SELECT 'relation ' || relname FROM pg_class WHERE relname LIKE '%\_\_slot%' AND relkind <> 't'
    UNION ALL SELECT 'slot ' || slot FROM feed_state.slots s
               WHERE NOT EXISTS (SELECT FROM feed_state.consumer_groups g
                                  WHERE g.group_name = s.group_name AND g.active_slot = s.slot)
    UNION ALL SELECT 'group ' || group_name FROM feed_state.consumer_groups WHERE group_name <> 'feed'
    UNION ALL SELECT 'offset of ' || group_name FROM feed_state.offsets WHERE group_name <> 'feed'
    UNION ALL SELECT 'instance of ' || group_name FROM feed_state.instances WHERE group_name <> 'feed'
    UNION ALL SELECT 'rebuild ' || state FROM feed_state.rebuilds)");
  for (int i = 0; i < rows.rows(); ++i) found += std::string(rows.Text(i, 0)) + "\n";
  const std::string active = Subscription();
  const auto subscriptions = transport->admin().ListSubscriptions("p");
  EXPECT_TRUE(subscriptions.ok());
  for (const auto& subscription : *subscriptions) {
    if (subscription.name != active && subscription.name != options.snapshots)
      found += subscription.name + "\n";
  }
  const auto snapshots = transport->admin().ListSnapshots("p");
  EXPECT_TRUE(snapshots.ok());
  for (const auto& snapshot : *snapshots) found += snapshot.name + "\n";
  return found;
}

}  // namespace lockstep::operations
