// The life of a lockstep-runner process: signals, --once, a database that is not there, giants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "runner/testing/binary_world.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/transaction_pooler.h"

namespace lockstep::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kQuitAtOnce = 130;

TEST(RunnerProcess, FinishesAndAcksWhatItHasInHandOnSigterm) {
  BinaryWorld world;
  world.group_settings = "    lanes: 1\n    max_batch: 5\n";
  world.Block();
  for (int i = 0; i < 20; ++i) world.Publish("k" + std::to_string(i), 1);
  const auto runner = world.Runner();
  ASSERT_TRUE(world.AwaitBlocked()) << runner->Errors();
  runner->Signal(SIGTERM);
  ASSERT_TRUE(world.AwaitLog(*runner, "finishing what is in hand"));
  world.Unblock();
  EXPECT_EQ(runner->Wait(), 0) << runner->Errors();
  // Applied or given back, and never both.
  const auto left = world.LeftOver();
  EXPECT_GE(world.Count("SELECT count(*) FROM rm.items"), 5);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items") + static_cast<int64_t>(left.size()), 20);
}

TEST(RunnerProcess, GivesBackWhatHangsAndEndsInTime) {
  BinaryWorld world;
  world.group_settings = "    lanes: 2\n    max_batch: 5\n    statement_timeout: 10m\n";
  world.Block();
  for (int i = 0; i < 20; ++i) world.Publish("k" + std::to_string(i), 1);
  const auto runner = world.Runner();
  ASSERT_TRUE(world.AwaitBlocked()) << runner->Errors();
  const auto asked = Clock::System().Steady();
  runner->Signal(SIGTERM);
  EXPECT_EQ(runner->Wait(), 0) << runner->Errors();
  // Ten seconds are the promise; the rest is for a machine that is busy with other things.
  EXPECT_LT(Clock::System().Steady() - asked, std::chrono::seconds(20));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 0);
  // At once, and not when the leases run out a minute later.
  EXPECT_THAT(world.LeftOver(), SizeIs(20));
}

TEST(RunnerProcess, RefusesATransactionPooler) {
  BinaryWorld world;
  testing::TransactionPooler pooler(world.database.url(), 1);
  world.database_url = pooler.url();
  const auto runner = world.Runner({"--once"});
  EXPECT_EQ(runner->Wait(), 1);
  EXPECT_THAT(runner->Errors(), HasSubstr("through a transaction pooler"));
}

TEST(RunnerProcess, QuitsAtOnceOnASecondSignal) {
  BinaryWorld world;
  world.Block();
  world.Publish("a", 1);
  const auto runner = world.Runner();
  ASSERT_TRUE(world.AwaitBlocked()) << runner->Errors();
  runner->Signal(SIGTERM);
  ASSERT_TRUE(world.AwaitLog(*runner, "finishing what is in hand"));
  runner->Signal(SIGINT);
  EXPECT_EQ(runner->Wait(), kQuitAtOnce) << runner->Errors();  // while its transaction still waits
  world.Unblock();
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 0) << "no part of it committed";
}

// One group whose table is locked, one whose table is missing: neither is the others' business.
TEST(RunnerProcess, GoesOnWithTheOtherGroupsWhenOneHaltsAndOneIsStuck) {
  BinaryWorld world;
  const int port = testing::FreePort();
  world.http = "{port: " + std::to_string(port) + "}";
  world.settings = "health: {stuck_after: 1s}\n";
  world.group_settings = "    statement_timeout: 10m\n";
  for (const std::string name : {"well", "broken"}) {
    ASSERT_TRUE(world.transport->admin()
                    .CreateSubscription({.name = "projects/p/subscriptions/items." + name,
                                         .topic = world.topic,
                                         .ordering = true})
                    .ok());
    world.group_settings += "  - file: " + name + ".yaml\n";
    std::ofstream(world.folder + "/" + name + ".yaml")
        << "group: " << name << "\nsubscription: items." << name
        << "\nprojections:\n  - name: " << name << "\n    table: rm." << name
        << "\n    key: id\n    version: version\n    events:\n      ItemChanged: {replace: [a]}\n";
  }
  world.database.Run("CREATE TABLE rm.well (id text PRIMARY KEY, version bigint NOT NULL, a text)");
  world.Block();  // rm.items, the first group's
  const auto runner = world.Runner();
  world.Publish("a", 1);
  ASSERT_TRUE(world.AwaitBlocked()) << runner->Errors();
  const auto ready = [&](const std::string& query) {
    return testing::HttpGet("http://127.0.0.1:" + std::to_string(port) + "/readyz" + query);
  };
  ASSERT_TRUE(world.Await([&] { return ready("").find("group feed: lane") != std::string::npos; }))
      << ready("");
  EXPECT_THAT(ready(""), AllOf(HasSubstr("503 "), HasSubstr("group broken: halted"),
                               HasSubstr("rm.broken"), HasSubstr("group well: ready")));
  EXPECT_THAT(ready("?group=feed"), HasSubstr("503 "));
  EXPECT_THAT(ready("?group=broken"), HasSubstr("503 "));
  EXPECT_THAT(ready("?group=nobody"), HasSubstr("404 "));
  EXPECT_THAT(ready("?group=well"), HasSubstr("200 "));
  world.Publish("a", 2);
  EXPECT_TRUE(world.Await([&] {
    return world.Count("SELECT count(*) FROM rm.well WHERE version = 2") == 1;
  })) << runner->Errors();
  world.Unblock();
  EXPECT_TRUE(world.Await([&] { return ready("?group=feed").starts_with("200 "); }));
}

TEST(RunnerProcess, WorksOffWhatIsThereAndEnds) {
  BinaryWorld world;
  world.settings = "once_quiet: 300ms\n";
  for (int i = 0; i < 30; ++i) world.Publish("k" + std::to_string(i % 10), i / 10 + 1);
  const auto first = world.Runner({"--once"});
  EXPECT_EQ(first->Wait(), 0) << first->Errors();
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE version = 3"), 10);
  const auto second = world.Runner({"--once"});
  EXPECT_EQ(second->Wait(), 0) << second->Errors();
  EXPECT_THAT(world.LeftOver(), IsEmpty());
}

TEST(RunnerProcess, SaysWhatBecameOfWhatWasThereAndEndsWithAStatusOfItsOwnWhenSomeDied) {
  BinaryWorld world;
  world.settings = "once_quiet: 300ms\n";
  world.Publish("good", 1);
  for (int i = 0; i < 6; ++i) world.Publish("bad" + std::to_string(i), 1, "not json");
  const auto first = world.Runner({"--once"});
  EXPECT_EQ(first->Wait(), 4) << first->Errors();
  EXPECT_THAT(first->Errors(), AllOf(HasSubstr("msg=\"worked off\" group=feed applied=1"),
                                     HasSubstr("dead_letters=6"), HasSubstr("6 of group 'feed'"),
                                     HasSubstr("dead-letters list` shows which, and why")));
  const auto second = world.Runner({"--once"});
  EXPECT_EQ(second->Wait(), 0) << "those were told; " << second->Errors();
}

TEST(RunnerProcess, ForgetsWhatWasResolvedAndAuditedAsConfigured) {
  BinaryWorld world;
  world.settings = "once_quiet: 300ms\ndead_letter_retention: 1000h\naudit_retention: 2000h\n";
  EXPECT_EQ(world.Runner({"--once"})->Wait(), 0);
  world.database.Run(R"(
    INSERT INTO feed_state.dead_letters (group_name, generation, message_id, ordering_key, publish_time, attributes,
                                         payload, code, reason, blocks, state, dead_at, resolved_at)
    SELECT 'feed', 1, h::text, 'k', now(), '{}', '', 'C', 'r', false, 'discarded', now() - interval '9000 hours',
           now() - h * interval '1 hour' FROM unnest(ARRAY[900, 1100]) h;
    INSERT INTO feed_state.audit (group_name, action, operator, at)
    SELECT 'feed', 'a', 'o', now() - h * interval '1 hour' FROM unnest(ARRAY[1900, 2100]) h)");
  const auto runner = world.Runner();
  EXPECT_TRUE(world.Await([&] {
    return world.Count("SELECT count(*) FROM feed_state.dead_letters") == 1 &&
           world.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'a'") == 1;
  })) << runner->Errors();
}

TEST(RunnerProcess, DoesNotWaitWithoutEndForWhatIsAway) {
  BinaryWorld world;
  world.settings = "once_timeout: 500ms\n";
  const std::string nowhere = "127.0.0.1:" + std::to_string(testing::FreePort());
  world.database_url = "postgresql://lockstep@" + nowhere + "/postgres";
  const auto no_database = world.Runner({"--once"});
  EXPECT_EQ(no_database->Wait(), 1);
  EXPECT_THAT(no_database->Errors(), HasSubstr("gave up after 500ms"));
  EXPECT_THAT(no_database->Errors(), HasSubstr("connect"));

  world.database_url = world.database.url();
  world.emulator_host = nowhere;
  const auto no_bus = world.Runner({"--once"});
  EXPECT_EQ(no_bus->Wait(), 1);
  EXPECT_THAT(no_bus->Errors(), HasSubstr("gave up after 500ms"));
  EXPECT_THAT(no_bus->Errors(),
              HasSubstr("group 'feed' is starting: no answer yet about subscription projects/"));
}

TEST(RunnerProcess, WaitsForADatabaseThatIsDownAtTheStartAndSaysSo) {
  BinaryWorld world;
  const auto cluster = postgres::Connection::Open({.url = testing::TestCluster()});
  ASSERT_TRUE(cluster.ok());
  const auto allow = [&](const char* what) {
    ASSERT_TRUE(
        (*cluster)
            ->Execute("ALTER DATABASE " + world.database.name() + " ALLOW_CONNECTIONS " + what)
            .ok());
  };
  allow("false");
  world.Publish("a", 1);
  const auto runner = world.Runner();
  ASSERT_TRUE(world.AwaitLog(*runner, "waiting for the database"));
  EXPECT_THAT(runner->Errors(), HasSubstr("retry_in="));
  EXPECT_THAT(runner->Errors(), HasSubstr("is not currently accepting connections"));
  allow("true");
  ASSERT_TRUE(world.AwaitLog(*runner, "the database answers again"));
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 1; }));
  runner->Signal(SIGTERM);
  EXPECT_EQ(runner->Wait(), 0) << runner->Errors();
}

int64_t PeakMiB(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib / 1024;
  }
  return -1;
}

// 80 MB of giants, with room for one: memory follows the room, not the backlog.
TEST(RunnerProcess, KeepsItsMemoryWithinBoundsWhateverTheSize) {
// Not __SANITIZE_THREAD__, which cmake/LockstepToolchain.cmake takes away.
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN)
  GTEST_SKIP() << "a sanitizer keeps what was freed";
#endif
  BinaryWorld world;
  world.group_settings = "    lanes: 1\n    max_outstanding_bytes: 1048576\n";
  const std::string giant(9'900'000, 'x');
  for (int i = 0; i < 8; ++i) {
    const std::string id = "k" + std::to_string(i);
    world.Publish(id, 1, R"({"id":")" + id + R"(","a":")" + giant + "\"}");
  }
  const auto runner = world.Runner();
  const auto all = [&] { return world.Count("SELECT count(*) FROM rm.items") == 8; };
  ASSERT_TRUE(world.Await(all, Millis(120'000))) << runner->Errors();
  const int64_t peak = PeakMiB(runner->pid());
  RecordProperty("peak_mib", static_cast<int>(peak));
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, 180);
  runner->Signal(SIGTERM);
  EXPECT_EQ(runner->Wait(), 0);
}

}  // namespace
}  // namespace lockstep::runner
