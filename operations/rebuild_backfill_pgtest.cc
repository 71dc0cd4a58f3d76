// Rebuilds from a backfill: of a topic that keeps nothing, while the source goes on changing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operations/testing/rebuild_fixture.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/worker.h"
#include "runner/testing/test_group.h"
#include "sql/migrations.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

using publisher::BackfillRecord;
using publisher::BackfillStore;
using publisher::BackfillWorker;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kOwnTopic[] = "projects/p/topics/items.backfill";
constexpr char kOwnSubscription[] = "projects/p/subscriptions/items.backfill.feed";

constexpr char kStates[] = R"(
group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    updated_at: updated_at
    events:
      ItemChanged: {replace: {a: a, note: note}}
      ItemNoted: {merge: {note: note}}
      ItemDeleted: delete
)";

pubsub::Message Event(const std::string& type, const std::string& id, int64_t version,
                      const std::string& payload) {
  pubsub::Message message = TestEvent{.id = id, .version = version, .payload = payload}.Message();
  message.attributes["event_type"] = type;
  return message;
}

std::string Words(const absl::Status& status) { return std::string(MessageOf(status)); }

// A source whose rows are those of the read model, and its publisher.
class BackfillWorld : public RebuildWorld {
 public:
  explicit BackfillWorld(const std::string& group_file = kStates)
      : RebuildWorld(/*history=*/false, group_file) {
    EXPECT_TRUE(postgres::Migrator(*writer_, "lockstep", sql::OutboxMigrations()).Up().ok());
    source.Run(
        "SELECT lockstep.create_outbox('shop.outbox'); "
        "CREATE TABLE shop.items (id text PRIMARY KEY, version bigint, a text, note text)");
    source_url = source.url();
    before_publish = [this](int64_t version) {
      const auto raised = writer_->Execute(
          "INSERT INTO shop.items SELECT 'k' || n, $1::bigint, ($1::bigint)::text FROM "
          "generate_series(0, 19) n ON CONFLICT (id) DO UPDATE SET version = excluded.version, a = "
          "excluded.a",
          version);
      EXPECT_TRUE(raised.ok()) << raised.status();
    };
    publisher::Declaration items;
    items.name = "items";
    items.outbox = {"shop", "outbox"};
    items.topic = "items.changed";
    items.table = "shop.items";
    items.key = {"id"};
    items.aggregate_type = "item";
    items.aggregate_id = "id";
    items.version = "version";
    items.event_type = "ItemChanged";
    items.fields = {{"id", "id"}, {"a", "a"}, {"note", "note"}};
    backfills = {items};
  }
  ~BackfillWorld() {
    StopLoad();
    worker_.reset();
  }

  void StartPublisher(const std::string& topic = kTopic) {
    sender_ = transport->NewPublisher({});
    worker_ = std::make_unique<BackfillWorker>(
        BackfillWorker::Options{.database = source.url(),
                                .instance = "publisher",
                                .outboxes = {"shop.outbox"},
                                .look = Millis(5)},
        *sender_, [topic](const std::string&) { return topic; }, worker_metrics_);
    EXPECT_TRUE(worker_->Start().ok());
  }
  void OwnTopic() {
    EXPECT_TRUE(transport->admin().CreateTopic({.name = kOwnTopic}).ok());
    EXPECT_TRUE(
        transport->admin()
            .CreateSubscription({.name = kOwnSubscription, .topic = kOwnTopic, .ordering = true})
            .ok());
    options.snapshots = kOwnSubscription;
  }

  // "state rows", of each backfill.
  std::vector<std::string> Backfills() {
    std::vector<std::string> found;
    const auto rows = source.Query(
        "SELECT state || ' ' || rows_done FROM lockstep.backfills ORDER BY created_at");
    for (int i = 0; i < rows.rows(); ++i) found.emplace_back(rows.Text(i, 0));
    return found;
  }
  // Whether the read model holds what the source does.
  bool Equal() {
    constexpr char kAll[] =
        "SELECT coalesce(string_agg(concat_ws('|', id, version, a, note), ',' ORDER BY id "
        "COLLATE \"C\"), '') FROM ";
    const auto theirs = source.Query(std::string(kAll) + "shop.items");
    const auto ours = database.Query(std::string(kAll) + "rm.items");
    EXPECT_EQ(ours.Text(0, 0), theirs.Text(0, 0));
    return ours.Text(0, 0) == theirs.Text(0, 0);
  }

  testing::TestDatabase source;

 private:
  std::unique_ptr<postgres::Connection> writer_ = source.Connect();  // of whoever publishes
  MetricsRegistry worker_metrics_;
  std::unique_ptr<pubsub::Publisher> sender_;
  std::unique_ptr<BackfillWorker> worker_;
};

class RebuildFromBackfill : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.StartRunner("one");
    world_.Publish(5);
    ASSERT_TRUE(world_.Settle());
  }
  // "(key) what", of the last comparison.
  static std::vector<std::string> Differences(const Rebuild& rebuild) {
    std::vector<std::string> lines;
    if (!rebuild.last_swap()) return {"not compared"};
    for (const auto& table : rebuild.last_swap()->tables) {
      for (const auto& one : table.differences) lines.push_back(one.key + " " + one.what);
    }
    return lines;
  }

  BackfillWorld world_;
};

TEST_F(RebuildFromBackfill, TakesTheSourceOverWhereTheTopicKeepsNothing) {
  world_.StartPublisher();
  world_.database.Run("UPDATE rm.items SET a = 'spoilt' WHERE id = 'k3'");
  world_.database.Run("INSERT INTO rm.items VALUES ('ghost', 1, 'x', now())");
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  EXPECT_THAT(Words(world_.Resume(*driver.rebuild)), HasSubstr("differ from the live ones"));
  EXPECT_THAT(Differences(*driver.rebuild),
              UnorderedElementsAre("(ghost) is missing in the new table", "(k3) differs in a"));
  EXPECT_EQ(world_.Subscription(), kSubscription);
  ASSERT_EQ(world_.Resume(*driver.rebuild, /*despite_differences=*/true), absl::OkStatus());
  EXPECT_TRUE(world_.Equal());
  EXPECT_THAT(world_.Backfills(), ElementsAre("done 20"));
  world_.Publish(2);
  EXPECT_TRUE(world_.Settle());
  ASSERT_EQ(driver.rebuild->Finish(/*now=*/true), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
  EXPECT_TRUE(world_.Equal());
}

TEST_F(RebuildFromBackfill, UnderLoadReadersNoticeNothing) {
  world_.StartPublisher();
  world_.StartLoad();
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_EQ(world_.Subscription(), std::string(kSubscription) + ".slot2");
  world_.AllowStepBack();
  ASSERT_EQ(driver.rebuild->Rollback("ada", "a test"), absl::OkStatus());
  world_.StopLoad();
  EXPECT_THAT(world_.complaints(), IsEmpty());
  EXPECT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.Equal());
  EXPECT_EQ(world_.Orphans(), "");
  EXPECT_THAT(world_.Backfills(), ElementsAre("done 20"));
}

// Rows that are read before a change, whose snapshots come after it.
TEST_F(RebuildFromBackfill, ASnapshotThatTheTailHasOvertakenChangesNothing) {
  auto driver = world_.NewDriver([&](std::string_view step) {
    if (step != "backfilling") return absl::OkStatus();
    world_.Send({Event("ItemDeleted", "k1", 6, R"({"id":"k1"})"),
                 Event("ItemNoted", "k2", 6, R"({"id":"k2","note":"read it"})"),
                 Event("ItemNoted", "k3", 6, R"({"id":"k3","note":"gone"})"),
                 Event("ItemDeleted", "k3", 7, R"({"id":"k3"})")});
    EXPECT_TRUE(world_.Await("SELECT count(*) FROM rm.items WHERE id IN ('k1', 'k3')", 0));
    // Its pages have k1 and k2 as they were; k3 it does not meet.
    world_.source.Run("DELETE FROM shop.items WHERE id = 'k3'");
    world_.StartPublisher();
    return absl::OkStatus();
  });
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus())
      << fmt::format("{}", fmt::join(Differences(*driver.rebuild), ", "));
  world_.source.Run(
      "DELETE FROM shop.items WHERE id = 'k1'; "
      "UPDATE shop.items SET version = 6, note = 'read it' WHERE id = 'k2'");
  EXPECT_TRUE(world_.Equal());
}

// They never come to the new subscription; what they did is in the rows.
TEST_F(RebuildFromBackfill, EventsFromBeforeTheNewSubscriptionAreNotMissed) {
  world_.StopRunners();
  world_.Publish(3);
  auto driver = world_.NewDriver([&](std::string_view step) {
    if (step == "made") world_.StartRunner("late");
    return absl::OkStatus();
  });
  world_.StartPublisher();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_FALSE(driver.rebuild->last_swap()->differs());
  EXPECT_TRUE(world_.Equal());
}

TEST_F(RebuildFromBackfill, OneThatFailsIsMendedAndGoneOnWith) {
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  world_.source.Run("INSERT INTO shop.items VALUES ('z', NULL, 'x')");
  world_.StartPublisher();
  EXPECT_THAT(Words(world_.Resume(*driver.rebuild)), HasSubstr("`lockstepctl backfill resume "));
  world_.source.Run("DELETE FROM shop.items WHERE id = 'z'");
  driver = {};
  world_.backfills.clear();  // it is kept at the source
  driver = world_.NewDriver();
  const auto row = driver.rebuild->Load();
  BackfillStore store(*driver.source);
  ASSERT_TRUE(
      store.Apply(BackfillStore::Change::kResume, (*row)->backfills.at("items"), "ada", "mended")
          .ok());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_THAT(world_.Backfills(), ElementsAre("done 20"));
}

TEST_F(RebuildFromBackfill, ATopicThatTheGroupDoesNotHearIsSaid) {
  ASSERT_TRUE(world_.transport->admin().CreateTopic({.name = kOwnTopic}).ok());
  world_.StartPublisher(kOwnTopic);
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  EXPECT_THAT(Words(world_.Resume(*driver.rebuild)),
              HasSubstr("sent 20 rows, and snapshots of 0 have come"));
  EXPECT_EQ(world_.Subscription(), kSubscription);
}

TEST_F(RebuildFromBackfill, RefusalsComeBeforeAnythingIsMade) {
  auto driver = world_.NewDriver();
  BackfillStore store(*driver.source);
  ASSERT_TRUE(store.Create(world_.backfills[0], 0, "ann", "").ok());
  EXPECT_THAT(Words(world_.Begin(*driver.rebuild)), HasSubstr("began before the new tables"));
  world_.source.Run("DELETE FROM lockstep.backfills");
  world_.source.Run("INSERT INTO shop.items VALUES ('z', NULL, 'x')");
  EXPECT_THAT(Words(world_.Begin(*driver.rebuild)), HasSubstr("backfill items can't start"));
  world_.source_url.clear();
  driver = {};
  driver = world_.NewDriver();
  EXPECT_THAT(Words(world_.Begin(*driver.rebuild)), HasSubstr("with --source"));
  EXPECT_EQ(world_.Orphans(), "");
  EXPECT_THAT(world_.Backfills(), IsEmpty());
}

TEST(RebuildFromBackfillOf, AGroupThatCountsOrThatItFillsInPartIsRefused) {
  for (
      const auto& [file, refusal] :
      {std::pair("", "does not take backfill items: event type 'ItemChanged' is counted"),
       std::pair(
           "group: feed\nsubscription: items.feed\nprojections:\n"
           "  - {name: items, table: rm.items, key: id, version: version, updated_at: updated_at,\n"
           "     events: {ItemChanged: {replace: {a: a}}}}\n"
           "  - {name: counters, table: rm.counters, key: id,\n"
           "     events: {ItemSeen: {increment: {n: {value: 1}}}}}\n",
           "rm.counters counts (projection counters)"),
       std::pair(
           "group: feed\nsubscription: items.feed\nprojections:\n"
           "  - {name: items, table: rm.items, key: id, version: version, updated_at: updated_at,\n"
           "     events: {ItemChanged: {replace: {a: a}}}}\n"
           "  - {name: others, table: rm.others, key: id, version: version,\n"
           "     events: {OtherChanged: {replace: {a: a}}}}\n",
           "nothing would fill rm.others (projection others)")}) {
    BackfillWorld world(file);
    world.database.Run(
        "CREATE TABLE rm.others (id text PRIMARY KEY, version bigint NOT NULL, a text)");
    world.StartRunner("one");
    world.Publish(1);
    ASSERT_TRUE(world.Settle());
    auto driver = world.NewDriver();
    EXPECT_THAT(Words(world.Begin(*driver.rebuild)), HasSubstr(refusal));
    EXPECT_EQ(world.Orphans(), "");
    EXPECT_THAT(world.Backfills(), IsEmpty());
  }
}

// Every step at which a process can die, and the ways on from there; through a topic of its own.
struct Death {
  const char* step;
  const char* then;  // resume, abort
};

class DiesRebuildingFromBackfill : public ::testing::TestWithParam<Death> {};

TEST_P(DiesRebuildingFromBackfill, LeavesOneBackfillOneTableAndNoOrphan) {
  BackfillWorld world;
  world.OwnTopic();
  world.StartRunner("one");
  world.Publish(3);
  ASSERT_TRUE(world.Settle());
  world.StartLoad();
  world.StartPublisher(kOwnTopic);
  const std::string then = GetParam().then;
  bool reached = false;
  {
    auto dying = world.NewDriver([&](std::string_view step) {
      if (step != GetParam().step) return absl::OkStatus();
      reached = true;
      return absl::InternalError("died here");
    });
    ASSERT_EQ(GetParam().step == std::string("begun"), !world.Begin(*dying.rebuild).ok());
    if (GetParam().step == std::string("cancelled")) {
      EXPECT_THAT(Words(dying.rebuild->Abort()), HasSubstr("died here"));
    } else if (!reached) {
      EXPECT_THAT(Words(world.Resume(*dying.rebuild)), HasSubstr("died here"));
    }
  }
  ASSERT_TRUE(reached);
  auto next = world.NewDriver();
  ASSERT_EQ(then == "abort" ? next.rebuild->Abort() : world.Resume(*next.rebuild),
            absl::OkStatus());
  if (then == "resume") {
    EXPECT_EQ(world.Subscription(), std::string(kSubscription) + ".slot2");
    ASSERT_EQ(next.rebuild->Finish(/*now=*/true), absl::OkStatus());
    EXPECT_THAT(world.Backfills(), ElementsAre("done 20"));
  } else {
    EXPECT_LE(world.Backfills().size(), 1u);
  }
  EXPECT_EQ(world.source.QueryInt("SELECT count(*) FROM lockstep.backfills WHERE ended_at IS NULL"),
            0);
  world.StopLoad();
  EXPECT_THAT(world.complaints(), IsEmpty());
  EXPECT_TRUE(world.Settle());
  EXPECT_TRUE(world.Equal());
  EXPECT_EQ(world.Orphans(), "");
}

INSTANTIATE_TEST_SUITE_P(
    AtEachStep, DiesRebuildingFromBackfill,
    ::testing::Values(Death{"begun", "resume"}, Death{"begun", "abort"},
                      Death{"subscribed", "resume"}, Death{"subscribed", "abort"},
                      Death{"subscribed.snapshots", "resume"},
                      Death{"subscribed.snapshots", "abort"}, Death{"made", "resume"},
                      Death{"made", "abort"}, Death{"backfilling", "resume"},
                      Death{"backfilling", "abort"}, Death{"filled", "resume"},
                      Death{"filled", "abort"}, Death{"swap.flipped", "resume"},
                      Death{"swapped", "resume"}, Death{"cancelled", "abort"}),
    [](const auto& test) {
      std::string name = fmt::format("{}_then_{}", test.param.step, test.param.then);
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

}  // namespace
}  // namespace lockstep::operations
