// What only whole processes can show: death, stops, restores, and many at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "publisher/testing/publishers.h"
#include "tests/support/eventually.h"
#include "tests/support/http_get.h"
#include "tests/support/silent_server.h"
#include "tests/support/transaction_pooler.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;
using testing::HttpGet;

// Where its pages are.
std::string UrlOf(const testing::Process& publisher) {
  std::smatch found;
  std::string log;
  while (!std::regex_search(log = publisher.Errors(), found, std::regex("url=(http://[0-9.:]+)"))) {
    std::this_thread::yield();
  }
  return found[1];
}

int Setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST_F(PublishersTest, OnceDrainsAndExits) {
  EnqueueMany("k", 250);
  const auto publisher = StartPublisher({"--once"});
  EXPECT_EQ(publisher->Wait(), 0) << publisher->Errors();
  EXPECT_EQ(Count("published_at IS NOT NULL"), 250);
}

TEST_F(PublishersTest, OnceSaysWhatKeptItFromDraining) {
  Enqueue({.key = "k", .topic = "no.such.topic"});
  Enqueue("good", 1);
  {
    const auto publisher = StartPublisher({"--once"});
    EXPECT_EQ(publisher->Wait(), 1);
    EXPECT_THAT(publisher->Errors(), HasSubstr("topic no.such.topic is out of reach"));
  }
  EXPECT_EQ(Count("published_at IS NOT NULL"), 1);
  {
    const auto publisher = StartPublisher({"--once", "--relay.tables=shop.nothing"});
    EXPECT_EQ(publisher->Wait(), 1);
    EXPECT_THAT(publisher->Errors(), HasSubstr("lockstepctl outbox create shop.nothing"));
  }
  {
    const auto publisher =
        StartPublisher({"--once", "--database=postgresql://nobody@127.0.0.1:1/nothing"});
    EXPECT_EQ(publisher->Wait(), 1);
    EXPECT_THAT(publisher->Errors(), HasSubstr("can't connect to Postgres"));
  }
}

// A row that is in doubt has spent no attempt, and is not published either.
TEST_F(PublishersTest, OnceSaysThatARowWaitsForAnotherTry) {
  server_.faults().RefuseNext("Publish", absl::InvalidArgumentError("no"));
  Enqueue("k", 1);
  const auto publisher =
      StartPublisher({"--once", "--relay.retry.base=1h", "--relay.retry.cap=1h"});
  EXPECT_EQ(publisher->Wait(), 1);
  EXPECT_THAT(publisher->Errors(), HasSubstr("1 of its rows failed and wait for another try"));
}

TEST_F(PublishersTest, OnceBesideAnActivePublisherEnds) {
  const auto active = StartPublisher();
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << active->Errors();
  const auto once = StartPublisher({"--once"});
  EXPECT_EQ(once->Wait(), 1);
  EXPECT_THAT(once->Errors(), HasSubstr("another publisher relays it"));
}

TEST_F(PublishersTest, ASignalEndsItInGoodOrder) {
  for (const char* http : {"--http.enabled=false", "--http.enabled=true"}) {
    const auto publisher = StartPublisher({http});
    Enqueue("k", 1 + Count("true"));
    ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", Count("true"))) << publisher->Errors();
    publisher->Signal(SIGTERM);
    EXPECT_EQ(publisher->Wait(), 0) << publisher->Errors();
    EXPECT_THAT(publisher->Errors(), HasSubstr("publisher stopped"));
  }
}

// Its database and its bus are silent, and --once waits for both.
TEST_F(PublishersTest, ASignalIsObeyedInTimeWhateverHangs) {
  constexpr int kGaveUp = 3;
  testing::SilentServer database(db_.url());
  server_.faults().Freeze();
  Enqueue("k", 1);
  const auto publisher = StartPublisher({"--once", "--database=" + database.url()});
  ASSERT_TRUE(AwaitRows("lock_token IS NOT NULL", 1)) << publisher->Errors();
  database.silent = true;
  publisher->Signal(SIGTERM);
  EXPECT_EQ(publisher->Wait(), kGaveUp) << publisher->Errors();
  server_.faults().Thaw();
}

TEST_F(PublishersTest, ASecondSignalEndsADrainAtOnce) {
  server_.faults().Freeze();
  Enqueue("k", 1);
  const auto publisher = StartPublisher({"--once"});
  ASSERT_TRUE(AwaitRows("lock_token IS NOT NULL", 1)) << publisher->Errors();
  publisher->Signal(SIGTERM);
  ASSERT_TRUE(testing::Eventually(
      [&] { return publisher->Errors().find("stopping") != std::string::npos; }));
  publisher->Signal(SIGTERM);
  EXPECT_EQ(publisher->Wait(), 130) << publisher->Errors();
  server_.faults().Thaw();
}

TEST_F(PublishersTest, SighupsInAStreamOfEventsLoseNothing) {
  const std::string file = ::testing::TempDir() + "/" + db_.name() + ".yaml";
  const auto write = [&](int batch) {
    std::ofstream(file) << "relay:\n  batch_size: " << batch << "\n";
  };
  write(10);
  const auto publisher = StartPublisher({"--config=" + file});
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << publisher->Errors();
  for (int version = 2; version <= 60; ++version) {
    write(1 + version % 7);
    publisher->Signal(SIGHUP);
    Enqueue("k", version);
  }
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 60)) << publisher->Errors();
  ASSERT_TRUE(sink_.Await([&] { return FirstDeliveries()["k"].size() == 60; }));
  const auto versions = FirstDeliveries()["k"];
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
  EXPECT_THAT(publisher->Errors(), HasSubstr("key=relay.batch_size"));
  std::remove(file.c_str());
}

TEST_F(PublishersTest, ThePagesSayHowItIs) {
  // A pool in session mode, to be taken away.
  auto road = std::make_unique<testing::TransactionPooler>(db_.url(), 20);
  road->pools_transactions = false;
  const auto publisher = StartPublisher(
      {"--database=" + road->url(), "--http.enabled=true", "--metrics.path=/numbers"});
  const std::string url = UrlOf(*publisher);
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << publisher->Errors();
  EXPECT_EQ(HttpGet(url + "/healthz"), "200 ok\n");
  ASSERT_TRUE(testing::Eventually([&] { return HttpGet(url + "/readyz") == "200 ready\n"; }));
  EXPECT_THAT(HttpGet(url + "/numbers"), HasSubstr("outbox_relay_leader{table=\"shop.outbox\"} 1"));
  EXPECT_THAT(HttpGet(url + "/metrics"), HasSubstr("404"));
  EXPECT_THAT(HttpGet(url + "/"), HasSubstr("200"));
  road.reset();
  // Ready until it has made no progress for half a minute.
  ASSERT_TRUE(testing::Eventually([&] { return HttpGet(url + "/readyz").starts_with("503"); },
                                  std::chrono::seconds(120)))
      << publisher->Errors();
  EXPECT_THAT(HttpGet(url + "/readyz"), HasSubstr("shop.outbox"));
  EXPECT_EQ(HttpGet(url + "/healthz"), "200 ok\n") << "the process is well";
}

TEST_F(PublishersTest, MetricsCanBeSwitchedOff) {
  const auto publisher = StartPublisher({"--http.enabled=true", "--metrics.enabled=false"});
  EXPECT_THAT(HttpGet(UrlOf(*publisher) + "/metrics"), HasSubstr("404"));
}

TEST_F(PublishersTest, AnotherTakesOverAfterKillNine) {
  auto first = StartPublisher();
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << first->Errors();
  auto second = StartPublisher();
  first->Signal(SIGKILL);
  first->Wait();
  EnqueueMany("other", 10);
  Enqueue("k", 2);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 12)) << second->Errors();
}

TEST_F(PublishersTest, AStoppedOwnerLosesItsShardsAndDoesNoHarmWhenItGoesOn) {
  auto stopped = StartPublisher(
      {"--relay.session_timeout=1s", "--relay.lock_ttl=2s", "--relay.poll_interval=1s"});
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << stopped->Errors();
  stopped->Signal(SIGSTOP);
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = "
               "'advisory' AND application_name LIKE 'lockstep-publisher%' AND datname = "
               "current_database()") == 0;
  })) << "its wake locks too";
  auto other = StartPublisher({"--relay.session_timeout=1s", "--relay.lock_ttl=2s"});
  for (int version = 2; version <= 20; ++version) Enqueue("k", version);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 20)) << other->Errors();
  stopped->Signal(SIGCONT);
  for (int version = 21; version <= 40; ++version) Enqueue("k", version);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 40)) << other->Errors();
  ASSERT_TRUE(sink_.Await([&] { return FirstDeliveries()["k"].size() == 40; }));
  const auto deliveries = FirstDeliveries().at("k");
  EXPECT_TRUE(std::is_sorted(deliveries.begin(), deliveries.end()));
}

class DumpedTest : public PublishersTest, public ::testing::WithParamInterface<bool> {
 protected:
  DumpedTest() : PublishersTest(/*partitioned=*/GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Tables, DumpedTest, ::testing::Bool(), [](const auto& partitioned) {
  return partitioned.param ? "Partitioned" : "Plain";
});

// As text, and as an archive.
TEST_P(DumpedTest, GoesOnAfterADumpAndARestore) {
  EnqueueMany("k", 20);
  {
    const auto publisher = StartPublisher({"--once"});
    ASSERT_EQ(publisher->Wait(), 0) << publisher->Errors();
  }
  // Some leased by a publisher that the copy does not know, some waiting.
  EnqueueMany("leased", 3);
  Claimer claimer = NewClaimer("gone");
  ASSERT_EQ(claimer.Take().rows.size(), 3u);
  EnqueueMany("waiting", 3);

  const std::string copy = db_.name() + "_copy";
  const std::string server = db_.url().substr(0, db_.url().rfind('/') + 1);
  db_.Query("CREATE DATABASE " + copy);
  const std::string command = fmt::format(
      fmt::runtime(GetParam()
                       ? "pg_dump -Fc -d '{}' | pg_restore --exit-on-error -d '{}{}'"
                       : "pg_dump -d '{}' | psql -q -v ON_ERROR_STOP=1 -d '{}{}' >/dev/null"),
      db_.url(), server, copy);
  ASSERT_EQ(std::system(("bash -o pipefail -c \"" + command + "\"").c_str()), 0);
  auto restored = postgres::Connection::Open({.url = server + copy});
  ASSERT_TRUE(restored.ok());
  ASSERT_TRUE(
      (*restored)
          ->Execute("UPDATE shop.outbox_status SET locked_at = now() - interval '1 hour' WHERE "
                    "lock_token IS NOT NULL")
          .ok());
  ASSERT_TRUE((*restored)
                  ->Execute("SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', "
                            "'waiting', 'T', 4, 'p')")
                  .ok());
  {
    const auto publisher = StartPublisher({"--once", "--database=" + server + copy});
    EXPECT_EQ(publisher->Wait(), 0) << publisher->Errors();
    const auto left =
        (*restored)->Execute("SELECT count(*), count(published_at) FROM shop.outbox_status");
    EXPECT_EQ(left->Int(0, 0), 27);
    EXPECT_EQ(left->Int(0, 1), 27);
  }
  (*restored).reset();
  db_.Query("DROP DATABASE " + copy + " WITH (FORCE)");
}

TEST_F(PublishersTest, IdleIsQuietAndUsesNoCpu) {
  Enqueue("k", 1);
  // Counted on the way: the server's own count has in it what other databases' NOTIFYs wake.
  testing::TransactionPooler road(db_.url(), 20);
  road.pools_transactions = false;
  const auto publisher = StartPublisher({"--database=" + road.url(), "--relay.ping_interval=3s"});
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1)) << publisher->Errors();
  std::this_thread::sleep_for(std::chrono::seconds(8));  // idle is a time
  const int64_t before = road.queries();
  const int64_t cpu = publisher->CpuMillis();
  constexpr int kSeconds = 22;  // long enough for a round of counting
  std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
  const int64_t queries = road.queries() - before;
  RecordProperty("queries", static_cast<int>(queries));
  RecordProperty("cpu_ms", static_cast<int>(publisher->CpuMillis() - cpu));
  fmt::print("idle: {} queries and {} ms of CPU in {} s\n", queries, publisher->CpuMillis() - cpu,
             kSeconds);
  EXPECT_LT(queries, kSeconds * 3 / 2);  // two rounds of counting may fall into it
  EXPECT_LT(publisher->CpuMillis() - cpu, 10 * kSeconds);  // one per cent
}

// 4 publishers, killed and started throughout. The size of the issue: LOCKSTEP_KILL_KEYS=1000
// LOCKSTEP_KILL_EVENTS=200000.
TEST_F(PublishersTest, NothingIsMissingAndKeysStayInOrderWhilePublishersAreKilled) {
  const int keys = Setting("LOCKSTEP_KILL_KEYS", 100);
  const int versions = Setting("LOCKSTEP_KILL_EVENTS", 10'000) / keys;
  const int seed = Setting("LOCKSTEP_KILL_SEED", 1);
  const std::vector<std::string> arguments = {
      "--relay.single_active=false", "--relay.shards=16",          "--relay.lock_ttl=2s",
      "--relay.poll_interval=500ms", "--relay.session_timeout=3s", "--log.level=error"};
  std::vector<std::unique_ptr<testing::Process>> publishers;
  for (int i = 0; i < 4; ++i) publishers.push_back(StartPublisher(arguments));

  std::atomic<bool> written = false;
  std::thread writer([&] {
    const auto connection = db_.Connect();
    for (int version = 1; version <= versions; ++version) {
      const auto enqueued = connection->Execute(
          "SELECT count(lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k' || i, 'T', $1, "
          "'payload')) FROM generate_series(1, $2::int) i",
          version, keys);
      EXPECT_TRUE(enqueued.ok()) << enqueued.status();
    }
    written = true;
  });
  std::mt19937 engine(static_cast<unsigned>(seed));
  int kills = 0;
  while (!written || kills < 6) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + engine() % 800));
    auto& victim = publishers[engine() % publishers.size()];
    victim->Signal(SIGKILL);
    victim->Wait();
    victim = StartPublisher(arguments);
    ++kills;
  }
  writer.join();
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", int64_t{keys} * versions))
      << Count("published_at IS NULL") << " left\n"
      << publishers[0]->Errors();
  ASSERT_TRUE(sink_.Await([&] {
    const auto first = FirstDeliveries();
    return std::accumulate(first.begin(), first.end(), size_t{0}, [](size_t sum, const auto& key) {
             return sum + key.second.size();
           }) == static_cast<size_t>(keys) * versions;
  }));
  std::vector<int64_t> wanted(versions);
  std::iota(wanted.begin(), wanted.end(), 1);
  const auto first = FirstDeliveries();
  ASSERT_EQ(first.size(), static_cast<size_t>(keys));
  for (const auto& [key, got] : first) EXPECT_EQ(got, wanted) << key;
  fmt::print("{} events of {} keys, {} kills, {} deliveries\n", keys * versions, keys, kills,
             sink_.count());
}

// Everything as in production: the command line starts it, processes die in the midst, the tail
// flows.
TEST_F(PublishersTest, ABackfillGoesOnWhereAKilledPublisherLeftIt) {
  constexpr int kRows = 6'000;
  db_.Run("CREATE TABLE shop.items (id bigint PRIMARY KEY, name text, version bigint)");
  db_.Run(fmt::format("INSERT INTO shop.items SELECT i, 'item', 1 FROM generate_series(1, {}) i",
                      kRows));
  const std::string file = ::testing::TempDir() + db_.name() + ".yaml";
  std::ofstream(file) << "backfill: items\noutbox: shop.outbox\ntopic: shop.events\n"
                         "table: shop.items\nkey: id\naggregate_type: item\nversion: version\n"
                         "event_type: shop.ItemChanged\npayload: {fields: [id, name]}\n"
                         "rows_per_second: 3000\n";
  testing::Process start("lockstepctl",
                         {"--database=" + db_.url(), "--yes", "backfill", "start", file});
  ASSERT_EQ(start.Wait(), 0) << start.Errors();
  const auto done = [&] { return db_.QueryInt("SELECT rows_done FROM lockstep.backfills"); };
  const auto state = [&] {
    return std::string(db_.Query("SELECT state FROM lockstep.backfills").Text(0, 0));
  };
  int64_t before = 0;
  for (int round = 0; round < 2; ++round) {
    const auto publisher = StartPublisher();
    ASSERT_TRUE(testing::Eventually([&] { return done() > before; }, std::chrono::seconds(60)))
        << publisher->Errors();
    publisher->Signal(SIGKILL);
    publisher->Wait();
    before = done();
    // A change in the meantime, as a service makes it.
    db_.Run("UPDATE shop.items SET version = version + 1, name = 'changed' WHERE id IN (1, 6000)");
    db_.Run(
        "UPDATE lockstep.backfills SET lease_until = now() - interval '1 s' WHERE lease_until IS "
        "NOT NULL");
  }
  EXPECT_LT(before, kRows);
  const auto last = StartPublisher();
  ASSERT_TRUE(testing::Eventually([&] { return state() != "running"; }, std::chrono::seconds(60)))
      << last->Errors();
  EXPECT_EQ(state(), "done");
  ASSERT_TRUE(testing::Eventually([&] { return FirstDeliveries().size() == kRows; }));
  std::map<std::string, std::set<std::string>> ids;  // of one row and version
  for (const auto& delivery : sink_.deliveries()) {
    const auto& attributes = delivery.message.attributes;
    EXPECT_EQ(attributes.at("lockstep_kind"), "snapshot");
    ids[attributes.at("aggregate_id") + ":" + attributes.at("version")].insert(
        attributes.at("event_id"));
  }
  for (const auto& [row, of_it] : ids) EXPECT_EQ(of_it.size(), 1U) << row;
  EXPECT_EQ(
      db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action LIKE 'backfill %'"), 2);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace lockstep::publisher
