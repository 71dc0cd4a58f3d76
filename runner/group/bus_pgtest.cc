// What the bus may do to a runner, and how a group lives and ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/str_join.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "postgres/sql_error.h"
#include "runner/service/inbox_cleaner.h"
#include "runner/status/health.h"
#include "runner/testing/test_group.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"
#include "tests/support/service_stress.h"
#include "tests/support/silent_server.h"

namespace lockstep::runner {
namespace {

TEST(Bus, MayTakeBackItsLeasesInTheMiddleOfABatch) {
  GroupWorld world;
  world.options.lanes = 1;
  world.Publish({{.id = "a", .version = 1}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  // The next batch waits for this row, with its deliveries in hand.
  const auto holder = world.database.Connect();
  auto held = holder->Begin();
  ASSERT_TRUE(held->Execute("SELECT 1 FROM rm.items WHERE id = 'a' FOR UPDATE").ok());
  world.Publish({{.id = "a", .version = 2}, {.id = "a", .version = 3}});
  ASSERT_TRUE(world.Await(
      [&] { return world.Count("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0; }));
  world.bus.LoseLeases(kSubscription);  // and delivers them again
  world.Publish({{.id = "a", .version = 4}});
  ASSERT_TRUE(held->Commit().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters"), 4);
  EXPECT_EQ(world.Value("SELECT string_agg(version::text, '' ORDER BY seq) FROM rm.history"),
            "1234");
}

// What came behind it with the same key is still leased, and its place is behind what comes again.
TEST(Bus, MayTakeBackOneLeaseOfAKey) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.max_batch = 1;
  world.Publish({{.id = "a", .version = 1}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  const auto holder = world.database.Connect();
  auto held = holder->Begin();
  ASSERT_TRUE(held->Execute("SELECT 1 FROM rm.items WHERE id = 'a' FOR UPDATE").ok());
  world.Publish({{.id = "a", .version = 2}});
  ASSERT_TRUE(world.Await(
      [&] { return world.Count("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0; }));
  world.Publish({{.id = "a", .version = 3}});
  const MessageId third = world.bus.published().back().message_id;
  world.Publish({{.id = "a", .version = 4}});
  ASSERT_TRUE(world.bus.Await([&] { return world.bus.Outstanding(kSubscription) == 3; }));
  world.bus.LoseLeases(kSubscription, third);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.nacks > 0; }));
  ASSERT_TRUE(held->Commit().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT string_agg(version::text, '' ORDER BY seq) FROM rm.history"),
            "1234");
}

// Its server answers nothing, not even an error: the silence alone must be heard.
TEST(GroupLife, IsNotReadyWhileItsDatabaseHangs) {
  GroupWorld world;
  auto server = std::make_unique<testing::SilentServer>(world.database.url());
  world.database_url = server->url();
  const HealthOptions limits{.stuck_after = Millis(500), .database_grace = Millis(500)};
  const auto group = world.NewGroup();
  const auto reasons = [&] {
    return absl::StrJoin(NotReady(group->status(), Clock::System().Now(), limits), "; ");
  };
  ASSERT_TRUE(world.Await([&] { return reasons().empty(); })) << reasons();
  server->silent = true;
  EXPECT_TRUE(world.Await([&] { return reasons().find("stood still") != std::string::npos; }))
      << reasons();
  server.reset();  // or the group would wait for its answers when it stops
}

TEST(Bus, MayLoseAcks) {
  GroupWorld world;
  std::atomic<bool> losing{true};
  world.bus.OnAck([&](const pubsub::AckToken&) {
    return losing ? absl::DeadlineExceededError("lost") : absl::OkStatus();
  });
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .version = 1}, {.id = "a", .version = 2}, {.id = "b", .version = 1}});
  ASSERT_TRUE(world.Await([&] { return group->status().counts.ack_failures >= 3; }));
  losing = false;
  world.bus.LoseLeases(kSubscription);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 3);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.duplicates >= 3; }));
}

TEST(Bus, MayBringTenMegabytesAndNothing) {
  GroupWorld world;
  const auto group = world.NewGroup();
  const std::string big(9'990'000, 'x');
  world.Publish({{.id = "big", .payload = Replace(big)},
                 {.id = "big", .version = 2, .payload = "broken " + big},
                 {.id = "big", .version = 3, .payload = Replace(big)},
                 {.id = "empty", .payload = ""},
                 {.id = "small"}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT length(a) FROM rm.items WHERE id = 'big'"), 9'990'000);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 2);
}

TEST(GroupLife, GivesBackOrAcksEverythingWhenItStops) {
  GroupWorld world;
  const auto group = world.NewGroup();
  std::vector<TestEvent> events;
  for (int i = 1; i <= 200; ++i)
    events.push_back({.id = "k" + std::to_string(i % 20), .version = (i + 19) / 20});
  world.Publish(events);
  ASSERT_TRUE(world.Await([&] { return group->status().counts.applied > 0; }));
  group->Stop();
  EXPECT_EQ(world.bus.Outstanding(kSubscription), 0);
  EXPECT_EQ(world.bus.Backlog(kSubscription),
            200 - world.Count("SELECT count(*) FROM feed_state.inbox"));
  const auto next = world.NewGroup("next");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 200);
}

TEST(GroupLife, WaitsForADatabaseThatIsDownAndGoesOnWhenItIsBack) {
  GroupWorld world;
  const auto cluster = postgres::Connection::Open({.url = testing::TestCluster()});
  ASSERT_TRUE(cluster.ok());
  const auto allow = [&](const char* what) {
    ASSERT_TRUE((*cluster)
                    ->Execute(fmt::format("ALTER DATABASE {} ALLOW_CONNECTIONS {}",
                                          world.database.name(), what))
                    .ok());
  };
  allow("false");
  world.Publish({{.id = "a"}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kWaiting; }));
  EXPECT_FALSE(group->status().ready());
  allow("true");
  ASSERT_TRUE(world.AwaitDrained());
  // In flight: every session of the runner is ended, and nothing is lost.
  world.database.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "
      "'lockstep-runner%' AND datname = current_database()");
  world.Publish({{.id = "b"}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 2);
}

TEST(GroupLife, DropsWhatCameUnderAnOlderEpochAndGoesOnUnderTheNext) {
  GroupWorld world;
  // Records under which epoch a lane wrote, and which one it was then: never another.
  world.database.Run(R"(
    CREATE TABLE rm.epochs (own bigint, current bigint);
    CREATE FUNCTION rm.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO rm.epochs SELECT NEW.epoch, epoch FROM feed_state.consumer_groups; RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER INSERT OR UPDATE ON feed_state.offsets FOR EACH ROW
      WHEN (NEW.instance = 'one') EXECUTE FUNCTION rm.note();)");
  world.poll = Millis(3600'000);  // so that the lanes alone can notice
  const auto group = world.NewGroup();
  std::vector<TestEvent> before, after;
  for (int i = 0; i < 100; ++i) before.push_back({.id = "k" + std::to_string(i)});
  for (int i = 0; i < 100; ++i) after.push_back({.id = "k" + std::to_string(i), .version = 2});
  world.Publish(before);
  ASSERT_TRUE(world.AwaitDrained());
  const auto changer = world.database.Connect();
  auto change = changer->Begin();
  const state::Epochs epochs(state::Schema("feed_state"), ConsumerGroup("feed"));
  ASSERT_TRUE(epochs.LockExclusively(*change).ok());
  ASSERT_TRUE(change
                  ->Execute("UPDATE feed_state.consumer_groups SET epoch = 2, "
                            "epoch_token = gen_random_uuid()")
                  .ok());
  ASSERT_TRUE(change->Commit().ok());
  world.Publish(after);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(group->status().epoch, 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE version = 2"), 100);
  EXPECT_GT(world.Count("SELECT count(*) FROM rm.epochs"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.epochs WHERE own <> current"), 0);
}

TEST(GroupLife, SeeksOnItsFirstStartOnly) {
  GroupWorld world;
  world.Publish({{.id = "old"}});
  world.options.start_from = "latest";
  auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  EXPECT_EQ(world.bus.seeks().size(), 1);
  group->Stop();
  group = world.NewGroup("again");
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  EXPECT_EQ(world.bus.seeks().size(), 1);
  world.Publish({{.id = "new"}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT string_agg(id, ',') FROM rm.items"), "new");
}

TEST(GroupLife, KeepsTwoServicesOfOneDatabaseApart) {
  GroupWorld world;
  const auto connection = world.database.Connect();
  ASSERT_TRUE(postgres::Migrator(*connection, "other_state", sql::StateMigrations()).Up().ok());
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 1);
  EXPECT_EQ(world.Count("SELECT (SELECT count(*) FROM other_state.inbox) + "
                        "(SELECT count(*) FROM other_state.consumer_groups) + "
                        "(SELECT count(*) FROM other_state.offsets)"),
            0);
}

// Two services in one database, each as a role of its own with the least that a runner needs.
TEST(GroupLife, LetsNoServiceReadTheOthersState) {
  GroupWorld world;
  const auto connection = world.database.Connect();
  ASSERT_TRUE(postgres::Migrator(*connection, "other_state", sql::StateMigrations()).Up().ok());
  const std::string feed = world.database.name() + "_feed";
  const std::string other = world.database.name() + "_other";
  for (const std::string& role : {feed, other})
    world.database.Run("CREATE ROLE " + role + " LOGIN");
  const auto grant = [&](const std::string& schema, const std::string& role) {
    world.database.Run(
        fmt::format("GRANT USAGE ON SCHEMA {0} TO {1}; "
                    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {1}; "
                    "REVOKE UPDATE, DELETE ON {0}.audit FROM {1}; "
                    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {0} TO {1}",
                    schema, role));
  };
  grant("feed_state", feed);
  grant("other_state", other);
  world.database.Run(
      fmt::format("GRANT USAGE ON SCHEMA rm TO {0}; "
                  "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA rm TO {0}",
                  feed));
  const GroupEnvironment environment{.database = world.database.UrlAs(feed),
                                     .state_schema = "feed_state",
                                     .instance = "as a role",
                                     .transport = world.bus,
                                     .metrics = world.metrics,
                                     .poll = Millis(50)};
  Group group(world.options, std::make_unique<TestProjector>(), environment);
  ASSERT_TRUE(group.Start().ok());
  // Everything that a runner writes: applied, parked, dead.
  world.Publish({{.id = "a"},
                 {.id = "a", .version = 3, .payload = Merge("a", "3")},
                 {.id = "b", .payload = "bad"}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 1);
  InboxCleaner cleaner({.database = world.database.UrlAs(feed), .state_schema = "feed_state"},
                       nullptr);
  EXPECT_EQ(*cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(0)}}), 3);
  group.Stop();

  const auto as_feed = postgres::Connection::Open({.url = world.database.UrlAs(feed)});
  const auto as_other = postgres::Connection::Open({.url = world.database.UrlAs(other)});
  ASSERT_TRUE(as_feed.ok() && as_other.ok());
  const auto tables = world.database.Query(
      "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
      "n.nspname = 'feed_state' AND c.relkind IN ('r', 'v', 'S')");
  ASSERT_GT(tables.rows(), 10);
  for (int i = 0; i < tables.rows(); ++i) {
    const std::string table(tables.Text(i, 0));
    EXPECT_EQ(postgres::SqlState(
                  (*as_other)->Execute("SELECT count(*) FROM feed_state." + table).status()),
              "42501");
    EXPECT_EQ(postgres::SqlState(
                  (*as_feed)->Execute("SELECT count(*) FROM other_state." + table).status()),
              "42501");
  }
  // Its own audit it writes and never changes.
  EXPECT_EQ(postgres::SqlState((*as_feed)->Execute("DELETE FROM feed_state.audit").status()),
            "42501");
  world.database.Run(fmt::format("DROP OWNED BY {0}, {1}; DROP ROLE {0}, {1}", feed, other));
}

TEST(GroupLife, IsThatOfAService) {
  GroupWorld world;
  pubsub::Transport& bus = world.bus;
  const GroupEnvironment environment{.database = world.database.url(),
                                     .state_schema = "feed_state",
                                     .instance = "stress",
                                     .transport = bus,
                                     .metrics = world.metrics};
  testing::StressService(
      [&] {
        return std::make_unique<Group>(world.options, std::make_unique<TestProjector>(),
                                       environment);
      },
      nullptr, /*rounds=*/2);
}

TEST(Group, IsNotDrainedWhileThereIsNoStream) {
  GroupWorld world;
  const auto group = world.NewGroup();
  constexpr Millis kQuiet{1'500};
  ASSERT_TRUE(testing::Eventually([&] { return group->DrainedFor(kQuiet); }));
  world.bus.SetStreamState(kSubscription, absl::UnavailableError("away"));
  EXPECT_TRUE(testing::Eventually([&] { return !group->DrainedFor(Millis(0)); }));
  world.bus.SetStreamState(kSubscription, absl::OkStatus());
  ASSERT_TRUE(testing::Eventually([&] { return group->DrainedFor(Millis(0)); }));
  EXPECT_FALSE(group->DrainedFor(kQuiet)) << "what was quiet before does not count";
}

}  // namespace
}  // namespace lockstep::runner
