// lockstepctl trace, as an operator runs it: one event through both databases, or one of them.
#include <gmock/gmock.h>
#include <unistd.h>

#include "ctl/testing/source_world.h"

namespace lockstep::ctl {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Item a: version 1 applied, 2 dead, 3 parked behind it.
class TraceCtl : public SourceWorld {
 protected:
  void SetUp() override {
    SourceWorld::SetUp();
    applied_ = Publish("a", 1);
    dead_ = Publish("a", 2, "not JSON");
    parked_ = Publish("a", 3);
    AwaitInbox(3);
  }

  std::string applied_, dead_, parked_;
};

TEST_F(TraceCtl, FollowsAnAppliedEventFromItsRowToTheReadModel) {
  const json trace = Json("trace " + applied_ + Source());
  EXPECT_EQ(trace["event_id"], applied_);
  EXPECT_EQ(trace["aggregate"], "item/a");
  EXPECT_EQ(trace["version"], 1);
  EXPECT_EQ(trace["outbox"]["state"], "published");
  EXPECT_EQ(trace["outbox"]["outbox"], "shop.outbox");
  EXPECT_FALSE(trace["outbox"].contains("payload"));
  const json& group = trace["groups"][0];
  EXPECT_EQ(group["group"], "feed");
  EXPECT_EQ(group["verdict"], "applied");
  EXPECT_TRUE(group["received_at"].is_string());
  EXPECT_NE(group["published_to_received"], "");
  ASSERT_EQ(group["rows"].size(), 1u) << trace;
  EXPECT_EQ(group["rows"][0]["table"], "rm.items");
  EXPECT_EQ(group["rows"][0]["key"]["id"], "a");
  EXPECT_EQ(group["rows"][0]["stored_version"], 1);
  EXPECT_THAT(world_.Ctl("trace " + applied_ + Source()).out,
              AllOf(HasSubstr("outbox   shop.outbox row 1, published: item/a v1"),
                    HasSubstr("after it was published)"), HasSubstr("has version 1")));
}

TEST_F(TraceCtl, FindsItByAggregateAndVersionAndByMessage) {
  const std::string v3 = "trace --aggregate-type item --aggregate-id a --version 3";
  const json both = Json(v3 + Source());
  EXPECT_EQ(both["event_id"], parked_);
  EXPECT_EQ(both["groups"][0]["verdict"], "parked: version 2 is a dead letter");
  const json consumer = Json(v3);
  EXPECT_EQ(consumer["event_id"], parked_) << "as it waits it says which event it is";
  EXPECT_EQ(consumer["outbox"], nullptr);
  EXPECT_TRUE(consumer["groups"][0]["received_at"].is_string());
  const std::string message(
      world_.database.Query("SELECT message_id FROM feed_state.dead_letters").Text(0, 0));
  const json dead = Json("trace --message-id " + message);
  EXPECT_EQ(dead["event_id"], dead_);
  EXPECT_THAT(std::string(dead["groups"][0]["verdict"]), StartsWith("dead letter 1 (dead)"));
  // Applied, and no id: the inbox can't tell, but the aggregate's version does.
  EXPECT_THAT(
      std::string(
          Json("trace --aggregate-type item --aggregate-id a --version 1")["groups"][0]["verdict"]),
      StartsWith("settled: version 1"));
}

// A restored source gives out versions again, under other ids.
TEST_F(TraceCtl, TakesNoOtherEventOfTheSameVersionForIt) {
  const std::string dead = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeee2";
  const std::string parked = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeee3";
  world_.database.Run("UPDATE shop.outbox SET event_id = '" + dead + "' WHERE event_id = '" +
                      dead_ + "'; UPDATE shop.outbox SET event_id = '" + parked +
                      "' WHERE event_id = '" + parked_ + "'");
  for (const std::string& id : {dead, parked}) {
    const json trace = Json("trace " + id + Source());
    EXPECT_EQ(trace["groups"][0]["fate"], nullptr) << trace;
    EXPECT_THAT(std::string(trace["groups"][0]["verdict"]), StartsWith("not received")) << trace;
  }
  EXPECT_EQ(Json("trace " + dead_)["groups"][0]["fate"], "dead");
}

TEST_F(TraceCtl, SaysWhatIsNotThere) {
  const std::string unknown = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
  const json trace = Json("trace " + unknown + Source());
  EXPECT_EQ(trace["outbox"], nullptr);
  EXPECT_EQ(trace["groups"][0]["verdict"], "not received");
  const std::string waiting = Enqueue("b", 1, "NULL");
  EXPECT_THAT(world_.Ctl("trace " + waiting + Source()).out,
              AllOf(HasSubstr("pending"), HasSubstr("not published, 0 attempts"),
                    HasSubstr("feed: not received"), HasSubstr("not there")));
  world_.database.Run("DELETE FROM feed_state.inbox WHERE event_id = '" + applied_ + "'");
  EXPECT_EQ(Json("trace " + applied_ + Source())["groups"][0]["verdict"],
            "not received, but version 1 is settled");
}

TEST_F(TraceCtl, AsksEveryGroupOfTheState) {
  world_.database.Run(
      "INSERT INTO feed_state.consumer_groups (group_name) VALUES ('other'); INSERT INTO "
      "feed_state.slots (group_name, slot, subscription) VALUES ('other', 1, 's')");
  const json trace = Json("trace " + applied_ + Source());
  ASSERT_EQ(trace["groups"].size(), 2u) << trace;
  EXPECT_EQ(trace["groups"][0]["fate"], "applied");
  EXPECT_EQ(trace["groups"][1]["group"], "other");
  EXPECT_EQ(trace["groups"][1]["fate"], nullptr);
  EXPECT_EQ(Json("trace " + applied_ + Source() + "--group feed")["groups"].size(), 1u);
}

// Two tenants may have the same aggregate and version.
TEST_F(TraceCtl, WhatCouldBeSeveralEventsIsNotGuessed) {
  for (const int tenant : {1, 2}) {
    world_.database.Run("UPDATE shop.outbox SET tenant_id = 'acme" + std::to_string(tenant) +
                        "' WHERE event_id = '" + Enqueue("twin", 1, "NULL") + "'");
  }
  const std::string twin = "trace --aggregate-type item --aggregate-id twin --version 1" + Source();
  const auto ran = world_.Ctl(twin);
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.err, HasSubstr("several such events: name one with --tenant"));
  EXPECT_EQ(Json(twin + "--tenant acme2")["aggregate"], "item@acme2/twin");
}

// The rest is told all the same.
TEST_F(TraceCtl, WhoMayNotReadThePayloadSeesNoRow) {
  const std::string role = "trace_reader_" + std::to_string(::getpid());
  world_.database.Run("CREATE ROLE " + role +
                      " LOGIN; SELECT lockstep.grant_reader('shop.outbox', '" + role + "')");
  std::string url = world_.database_url;
  const size_t user = url.find("//") + 2;
  url.replace(user, url.find('@') - user, role);
  const json trace = Json("trace " + applied_ + " --outbox shop.outbox --source '" + url + "'");
  EXPECT_EQ(trace["outbox"]["state"], "published") << trace;
  EXPECT_EQ(trace["groups"][0]["fate"], "applied") << trace;
  EXPECT_EQ(trace["groups"][0]["rows"], nullptr) << trace;
  world_.database.Run("DROP OWNED BY " + role + "; DROP ROLE " + role);
}

TEST_F(TraceCtl, RefusesWhatMakesNoSense) {
  const auto refused = [&](const std::string& command) {
    const auto ran = world_.Ctl(command);
    EXPECT_EQ(ran.status, 1) << command;
    return ran.err;
  };
  EXPECT_THAT(refused("trace"), HasSubstr("name one event"));
  EXPECT_THAT(refused("trace --aggregate-type item --aggregate-id a"), HasSubstr("name one event"));
  EXPECT_THAT(refused("trace nonsense"), HasSubstr("'nonsense' is not an event id"));
  EXPECT_THAT(refused("trace nonsense" + Source()), HasSubstr("'nonsense' is not an event id"));
  EXPECT_THAT(refused("trace " + applied_ + " --group other"),
              HasSubstr("there is no group 'other'"));
  EXPECT_THAT(refused("trace " + applied_ + " --source postgresql://127.0.0.1:1/nothing"),
              HasSubstr("the source's database (--source)"));
  EXPECT_EQ(world_.database.QueryInt("SELECT count(*) FROM feed_state.audit"), 0);
}

TEST_F(TraceCtl, ShowsNoControlCharacters) {
  const std::string id = Enqueue("x\033]0;y", 1, "NULL");
  EXPECT_THAT(world_.Ctl("trace " + id + Source()).out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace lockstep::ctl
