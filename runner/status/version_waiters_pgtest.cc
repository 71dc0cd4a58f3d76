// Read your writes: reached() and await() in SQL, /api/await over HTTP.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runner/status/version_waiters.h"
#include "runner/testing/test_group.h"
#include "tests/support/http_get.h"

namespace lockstep::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kIgnored[] = R"({"ignore":true})";

// A group that only replaces: it would follow no version by itself.
class ReachedTest : public ::testing::Test {
 protected:
  ReachedTest() {
    world_.may_park = false;
    world_.options.follow_versions = true;
  }
  bool Reached(const std::string& id, int64_t version, const std::string& more = "") {
    return world_.Value(fmt::format("SELECT feed_state.reached('feed', 'item', '{}', {}{})", id,
                                    version, more)) == "t";
  }
  // The error's text; empty when there is none.
  static std::string Error(postgres::Executor& on, const std::string& sql) {
    const auto ran = on.Execute(sql);
    return ran.ok() ? "" : std::string(MessageOf(ran.status()));
  }
  std::string Error(const std::string& sql) { return Error(*world_.database.Connect(), sql); }
  void Apply(const std::vector<TestEvent>& events) {
    world_.Publish(events);
    ASSERT_TRUE(world_.AwaitDrained());
  }

  GroupWorld world_;
};

TEST_F(ReachedTest, IsExactPerAggregateAndVersion) {
  const auto group = world_.NewGroup();
  Apply({{.id = "a", .version = 1}, {.id = "a", .version = 2}, {.id = "b", .version = 5}});
  EXPECT_TRUE(Reached("a", 1));
  EXPECT_TRUE(Reached("a", 2));
  EXPECT_FALSE(Reached("a", 3));
  EXPECT_TRUE(Reached("b", 5));
  EXPECT_FALSE(Reached("nobody", 1)) << "a key without a row";
  EXPECT_FALSE(Reached("a", 1, ", 'acme'")) << "another tenant's";
}

// As a reset leaves it that empties the read model.
TEST_F(ReachedTest, WhatAnEarlierReadModelHadIsNotReached) {
  {
    const auto group = world_.NewGroup();
    Apply({{.id = "a", .version = 7}});
    EXPECT_TRUE(Reached("a", 7));
  }
  world_.database.Run("UPDATE feed_state.slots SET generation = nextval('feed_state.generations')");
  EXPECT_FALSE(Reached("a", 7));
  EXPECT_EQ(world_.Value("SELECT feed_state.settled_version('feed', 'item', 'a') IS NULL"), "t");
}

// No row says so: the table has v1, and the group v3.
TEST_F(ReachedTest, CountsWhatChangesNoRow) {
  const auto group = world_.NewGroup();
  Apply({{.version = 1}, {.version = 2, .payload = kIgnored}, {.version = 3, .payload = kIgnored}});
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 1);
  EXPECT_TRUE(Reached("k1", 3));
  EXPECT_FALSE(Reached("k1", 4));
}

TEST_F(ReachedTest, AVersionThatIsDeadOrWaitsIsNotReached) {
  const auto group = world_.NewGroup();
  Apply({{.version = 1}, {.version = 2, .payload = "not JSON"}, {.version = 3}});
  EXPECT_TRUE(Reached("k1", 1));
  EXPECT_FALSE(Reached("k1", 2));
  EXPECT_FALSE(Reached("k1", 3)) << "it is parked";
}

TEST_F(ReachedTest, AGapIsNotMindedThoughVersionsAreFollowed) {
  const auto group = world_.NewGroup();
  Apply({{.version = 1}, {.version = 5}, {.version = 9, .payload = "not JSON"}, {.version = 12}});
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 5);
  EXPECT_TRUE(Reached("k1", 5));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked WHERE reason = 'poison'"), 1);
}

// More wait than a transaction takes, and one more comes while they are released.
TEST_F(ReachedTest, NothingIsReachedBeforeItIsReleased) {
  world_.look_for_left = Millis(100);
  const auto group = world_.NewGroup();
  Apply({{.version = 1}, {.version = 2, .payload = "not JSON"}});
  std::vector<TestEvent> behind;
  for (int v = 4; v <= 803; ++v) behind.push_back({.version = v});  // v3 never comes
  Apply(behind);
  ASSERT_EQ(world_.Count("SELECT parked FROM feed_state.key_state"), 800);
  world_.database.Run(
      "CREATE TABLE rm.broken (id int); CREATE FUNCTION rm.check() RETURNS trigger LANGUAGE "
      "plpgsql "
      "AS $$ BEGIN IF NEW.settled_version > coalesce((SELECT max(version) FROM rm.items), 0) THEN "
      "INSERT INTO rm.broken VALUES (1); END IF; RETURN NEW; END $$; CREATE CONSTRAINT TRIGGER t "
      "AFTER UPDATE "
      "ON feed_state.key_state DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "
      "rm.check()");
  world_.database.Run("UPDATE feed_state.key_state SET blocked_version = NULL");
  world_.Publish({{.version = 804}});
  EXPECT_TRUE(world_.Await([&] { return Reached("k1", 804); }));
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 804);
  EXPECT_EQ(world_.Count(kOutOfOrder), 0);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.broken"), 0) << "settled ahead of the table";
}

TEST_F(ReachedTest, TellsTenantsAndOddNamesApart) {
  const auto group = world_.NewGroup();
  pubsub::Message message = TestEvent{.id = "a/b@c%", .type = "i/t@e%m"}.Message();
  message.attributes["tenant_id"] = "ac/me@%";
  world_.PublishMessage(message);
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Value("SELECT feed_state.reached('feed', 'i/t@e%m', 'a/b@c%', 1, 'ac/me@%')"),
            "t");
  EXPECT_EQ(world_.Value("SELECT feed_state.reached('feed', 'i/t@e%m', 'a/b@c%', 1)"), "f");
}

TEST_F(ReachedTest, SaysWhyItCantAnswer) {
  world_.options.follow_versions = false;
  const auto group = world_.NewGroup();
  Apply({{.version = 1}});
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.key_state"), 0) << "nothing per event";
  EXPECT_THAT(Error("SELECT feed_state.reached('feed', 'item', 'k1', 1)"),
              HasSubstr("does not follow the versions"));
  EXPECT_THAT(Error("SELECT feed_state.reached('other', 'item', 'k1', 1)"),
              HasSubstr("there is no group \"other\""));
  EXPECT_THAT(Error("SELECT feed_state.reached('feed', 'item', 'k1', NULL)"),
              HasSubstr("must not be NULL"));
}

TEST_F(ReachedTest, AGroupThatParksOnGapsAnswersWithoutTheSetting) {
  world_.may_park = true;
  world_.options.follow_versions = false;
  const auto group = world_.NewGroup();
  Apply({{.version = 1, .payload = Merge("a", "x")}, {.version = 3, .payload = Merge("a", "y")}});
  EXPECT_TRUE(Reached("k1", 1));
  EXPECT_FALSE(Reached("k1", 3)) << "it waits for v2";
}

TEST_F(ReachedTest, AwaitEndsWhenTheVersionIsThere) {
  const auto group = world_.NewGroup();
  Apply({{.version = 1}});
  const auto session = world_.database.Connect();
  std::string waited;
  // One transaction around it: under READ COMMITTED each look sees what was committed meanwhile.
  std::thread waiter([&] {
    auto transaction = session->Begin();
    const auto rows = transaction->Execute(
        "SELECT feed_state.await('feed', 'item', 'k1', 2, timeout => '1 minute') AS there");
    waited = rows.ok() ? std::string(rows->Text(0, 0)) : std::string(MessageOf(rows.status()));
    const auto read = transaction->Execute("SELECT version FROM rm.items");
    waited += read.ok() ? std::string(read->Text(0, 0)) : "";
  });
  ASSERT_TRUE(world_.Await([&] {
    return world_.Count(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "
               "datname = current_database()") == 1;
  }));
  world_.Publish({{.version = 2}});
  waiter.join();
  EXPECT_EQ(waited, "t2");
  EXPECT_EQ(world_.Value("SELECT feed_state.await('feed', 'item', 'k1', 3, timeout => '10 ms')"),
            "f");
}

TEST_F(ReachedTest, AwaitSaysThatARepeatableReadWaitsInVain) {
  const auto group = world_.NewGroup();
  Apply({{.version = 1}});
  const auto session = world_.database.Connect();
  auto transaction = session->Begin();
  ASSERT_TRUE(transaction->Execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").ok());
  EXPECT_EQ(transaction->Execute("SELECT feed_state.await('feed', 'item', 'k1', 1)")->Text(0, 0),
            "t");
  EXPECT_THAT(Error(*transaction, "SELECT feed_state.await('feed', 'item', 'k1', 2)"),
              HasSubstr("would wait in vain"));
}

// The endpoint beside a group.
class AwaitApiTest : public ReachedTest {
 protected:
  void SetUp() override {
    group_ = world_.NewGroup();
    Apply({{.version = 1}});
    waiters_ =
        std::make_unique<VersionWaiters>(VersionWaiters::Options{.database = world_.database.url(),
                                                                 .state_schema = "feed_state",
                                                                 .groups = {"feed", "new"}},
                                         http_);
    http_.Handle("/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok"}; });
    ASSERT_TRUE(http_.Start().ok());
    ASSERT_TRUE(waiters_->Start().ok());
  }
  void TearDown() override {
    waiters_->Stop();
    http_.Stop();
  }
  std::string Get(const std::string& query) {
    return testing::HttpGet(http_.url() + "/api/await?" + query);
  }
  // Until the first who asks is being waited with: the session is opened for its look.
  bool AwaitFirstLook() {
    return world_.Await([&] {
      return world_.Count(
                 "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                 "application_name = 'lockstep-runner await' AND query LIKE '%follows%'") == 1;
    });
  }
  static std::string Asks(int64_t version, const std::string& timeout) {
    return fmt::format("group=feed&aggregate_type=item&aggregate_id=k1&version={}&timeout={}",
                       version, timeout);
  }

  std::unique_ptr<Group> group_;
  HttpServer http_{HttpOptions{.waiting = 2}};
  std::unique_ptr<VersionWaiters> waiters_;
};

TEST_F(AwaitApiTest, AnswersAtOnceWhenItIsThereAndHonestlyWhenItIsNot) {
  EXPECT_THAT(Get(Asks(1, "1m")),
              AllOf(StartsWith("200"), HasSubstr(R"("reached":true,"version":1)")));
  EXPECT_THAT(Get(Asks(2, "50ms")),
              AllOf(StartsWith("408"), HasSubstr(R"("reached":false,"version":1)")));
  EXPECT_THAT(Get("group=feed&aggregate_type=item&aggregate_id=nobody&version=1&timeout=0"),
              AllOf(StartsWith("408"), HasSubstr(R"("version":null)")));
  EXPECT_THAT(Get(Asks(1, "0") + "&tenant=acme"), StartsWith("408"));
}

TEST_F(AwaitApiTest, WaitsForTheVersionAndNoMoreThanAllowed) {
  std::string first, second;
  const auto wait = [&](int64_t version,
                        std::string& answer) {  // this test's own looks take a place
    while ((answer = Get(Asks(version, "1m"))).starts_with("429")) {
    }
  };
  std::thread one([&] { wait(2, first); });
  std::thread two([&] { wait(3, second); });
  ASSERT_TRUE(world_.Await([&] { return Get(Asks(9, "0")).starts_with("429"); }));
  EXPECT_EQ(testing::HttpGet(http_.url() + "/healthz"), "200 ok") << "probes are answered";
  world_.Publish({{.version = 2}});
  one.join();
  EXPECT_THAT(first, AllOf(StartsWith("200"), HasSubstr(R"("version":2)")));
  waiters_->Stop();
  two.join();
  EXPECT_THAT(second, StartsWith("503"));
  EXPECT_THAT(Get(Asks(1, "0")), StartsWith("503"));
}

// All who wait share a statement, and one that can't be asked must not spoil it for the others.
TEST_F(AwaitApiTest, WhatIsNoTextIsRefusedAndTheOthersGoOn) {
  std::string other;
  std::thread waiter([&] { other = Get(Asks(2, "1m")); });
  ASSERT_TRUE(AwaitFirstLook());
  for (const char* bad :
       {"aggregate_type=item&aggregate_id=%ff", "aggregate_type=item&aggregate_id=a%00b",
        "aggregate_type=%c3%28&aggregate_id=k1",
        "aggregate_type=item&aggregate_id=k1&tenant=%ed%a0%80"}) {
    EXPECT_THAT(Get(fmt::format("group=feed&{}&version=1&timeout=10s", bad)),
                AllOf(StartsWith("400"), HasSubstr("must be UTF-8")))
        << bad;
  }
  EXPECT_THAT(Get("group=feed&aggregate_type=item&aggregate_id=%c3%a4&version=1&timeout=0"),
              StartsWith("408"));
  world_.Publish({{.version = 2}});
  waiter.join();
  EXPECT_THAT(other, AllOf(StartsWith("200"), HasSubstr(R"("version":2)")));
}

TEST_F(AwaitApiTest, ValuesThatTheDatabaseRefusesSpoilNoOtherQuestion) {
  Apply({{.id = "bad", .version = 1}});
  std::string other;
  std::thread waiter([&] { other = Get(Asks(2, "1m")); });
  ASSERT_TRUE(AwaitFirstLook());
  // As a database in another encoding does with characters that it has not. STABLE and STRICT: it
  // is called for the rows that were asked for only.
  world_.database.Run(
      "CREATE FUNCTION rm.refuse(key text, settled bigint) RETURNS bigint LANGUAGE plpgsql STABLE "
      "STRICT AS $$ BEGIN IF key = 'item/bad' THEN RAISE EXCEPTION 'untranslatable' USING ERRCODE "
      "= '22P05'; END IF; RETURN settled; END $$; ALTER TABLE feed_state.key_state RENAME TO "
      "hidden; CREATE VIEW feed_state.key_state AS SELECT generation, aggregate_key, "
      "rm.refuse(aggregate_key, settled_version) AS settled_version FROM feed_state.hidden");
  EXPECT_THAT(Get("group=feed&aggregate_type=item&aggregate_id=bad&version=9&timeout=10s"),
              AllOf(StartsWith("400"), HasSubstr("does not take these values")));
  world_.database.Run(
      "UPDATE feed_state.hidden SET settled_version = 2 WHERE aggregate_key = 'item/k1'");
  waiter.join();
  EXPECT_THAT(other, AllOf(StartsWith("200"), HasSubstr(R"("version":2)")));
}

TEST_F(AwaitApiTest, SaysWhatIsWrongWithTheQuestion) {
  EXPECT_THAT(Get("group=feed&aggregate_type=item&version=1"),
              AllOf(StartsWith("400"), HasSubstr("'aggregate_id' is missing")));
  EXPECT_THAT(Get(Asks(1, "soon")), AllOf(StartsWith("400"), HasSubstr("timeout")));
  EXPECT_THAT(Get(Asks(1, "2h")), AllOf(StartsWith("400"), HasSubstr("at most")));
  EXPECT_THAT(Get("group=feed&aggregate_type=item&aggregate_id=k1&version=one"), StartsWith("400"));
  EXPECT_THAT(Get("group=other&aggregate_type=item&aggregate_id=k1&version=1"), StartsWith("404"));
  EXPECT_THAT(Get("group=new&aggregate_type=item&aggregate_id=k1&version=1"),
              AllOf(StartsWith("404"), HasSubstr("never started")));
  world_.database.Run("UPDATE feed_state.consumer_groups SET follows_versions = false");
  EXPECT_THAT(Get(Asks(1, "1m")), AllOf(StartsWith("409"), HasSubstr("follow_versions: true")));
  world_.database.Run("ALTER TABLE feed_state.key_state RENAME TO hidden");
  EXPECT_THAT(Get(Asks(1, "20ms")), StartsWith("503"));
}

}  // namespace
}  // namespace lockstep::runner
