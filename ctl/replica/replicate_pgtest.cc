// lockstepctl replicate, as somebody runs it who adopts data that was there before.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ctl/testing/backfill_ctl.h"

namespace lockstep::ctl {
namespace {

using ::testing::HasSubstr;

class ReplicateCtl : public BackfillCtl {
 protected:
  std::string Command(const std::string& more = "") {
    return "replicate feed " + Declaration() + Source() + "--grace 1s --yes --reason test " + more;
  }
};

TEST_F(ReplicateCtl, BringsTheRowsComparesThemAndDoesNothingTwice) {
  runner_ = world_.Runner();
  StartPublisher();
  const auto unasked = world_.Ctl("replicate feed " + Declaration() + Source());
  EXPECT_EQ(unasked.status, 2);
  EXPECT_THAT(unasked.err, HasSubstr("Repeat with --yes"));
  EXPECT_EQ(Backfills(), 0);

  const auto done = world_.Ctl(Command("--deep"));
  ASSERT_EQ(done.status, 0) << done.err << runner_->Errors();
  EXPECT_THAT(done.out, HasSubstr("rm.items (items): 3 rows at the source, 3 here, equal"));
  EXPECT_THAT(done.out, HasSubstr("Group feed is a replica of shop.items."));

  const auto again = world_.Ctl(Command("--json"));
  EXPECT_EQ(again.status, 0) << again.err;
  const auto json = nlohmann::json::parse(again.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << again.out;
  EXPECT_EQ(json["rows"], 3);
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["tables"][0]["replica_rows"], 3);
  EXPECT_EQ(Backfills(), 1);

  world_.database.Run("DELETE FROM rm.items WHERE id = 'b'");
  const auto spoilt = world_.Ctl(Command());
  EXPECT_EQ(spoilt.status, 1);
  EXPECT_THAT(spoilt.out, HasSubstr("`lockstepctl repair`"));
  EXPECT_EQ(world_.Ctl(Command("--no-verify")).status, 0);

  // A backfill that was cancelled is none that stands; the next one has the rows again.
  source_.Run("UPDATE lockstep.backfills SET state = 'cancelled'");
  EXPECT_EQ(world_.Ctl(Command()).status, 0);
  EXPECT_EQ(Backfills("state = 'done'"), 1);
}

TEST_F(ReplicateCtl, KilledItGoesOnWithTheSameBackfill) {
  const auto nobody = world_.Ctl(Command("--wait 1s"));
  EXPECT_EQ(nobody.status, 2);
  EXPECT_THAT(nobody.err, HasSubstr("no runner of group feed has ever started"));
  EXPECT_EQ(Backfills(), 0);
  runner_ = world_.Runner();
  {
    testing::Process killed("lockstepctl", {"--config", world_.folder + "/runner.yaml", "replicate",
                                            "feed", "--declaration", world_.folder + "/items.yaml",
                                            "--source", source_.url(), "--yes"});
    ASSERT_TRUE(world_.Await([&] { return Backfills() == 1; })) << killed.Errors();
  }
  StartPublisher();
  const auto done = world_.Ctl(Command());
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("going on with it"));
  EXPECT_EQ(Backfills(), 1);
}

TEST_F(ReplicateCtl, AnEditedDeclarationIsNotTakenForTheOneThatWasSent) {
  runner_ = world_.Runner();
  const std::string file = world_.folder + "/items.yaml";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const auto edit = [&](const std::string& key, const std::string& value) {
    std::string edited = text.str();
    edited.replace(edited.find(key), key.size(), value);
    std::ofstream(file, std::ios::trunc) << edited;
  };
  {
    testing::Process begun("lockstepctl",
                           {"--config", world_.folder + "/runner.yaml", "replicate", "feed",
                            "--declaration", file, "--source", source_.url(), "--yes"});
    ASSERT_TRUE(world_.Await([&] { return Backfills() == 1; })) << begun.Errors();
  }
  edit("fields: [id, a]", "fields: {id: id, a: id}");
  const auto open = world_.Ctl(Command());
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("lockstepctl backfill cancel"));
  edit("version: version", "version: version\nrows_per_second: 1000");
  StartPublisher();
  EXPECT_EQ(world_.Ctl(Command()).status, 0) << "its pace is not what it sends";
  edit("fields: [id, a]", "fields: {id: id, a: id}");
  const auto done = world_.Ctl(Command());
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("give this one another name"));
  EXPECT_EQ(Backfills(), 1);
}

// The snapshots of another backfill are not those of this one, also where they are of its rows.
TEST_F(ReplicateCtl, WhatAnotherBackfillBroughtIsNotTakenForThisOnes) {
  runner_ = world_.Runner();
  StartPublisher();
  ASSERT_EQ(world_.Ctl(Command("--no-verify")).status, 0);
  runner_.reset();
  const std::string file = world_.folder + "/items.yaml";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::string second = text.str();
  second.replace(second.find("backfill: items"), 15, "backfill: again");
  std::ofstream(file, std::ios::trunc) << second;
  const auto early = world_.Ctl(Command("--no-verify --wait 1s"));
  EXPECT_EQ(early.status, 2) << early.out;
  EXPECT_THAT(early.err, HasSubstr("snapshots of 3 have come to group feed in 1s, without 3 of"));
  runner_ = world_.Runner();
  EXPECT_EQ(world_.Ctl(Command("--no-verify")).status, 0);
  // A month later nobody knows its events any longer.
  world_.database.Run("DELETE FROM feed_state.inbox");
  source_.Run("UPDATE lockstep.backfills SET ended_at = ended_at - interval '40 days'");
  EXPECT_EQ(world_.Ctl(Command("--no-verify")).status, 0);
}

TEST_F(ReplicateCtl, SnapshotsMayHaveATopicOfTheirOwn) {
  const std::string topic = "projects/p/topics/items.backfill";
  ASSERT_TRUE(world_.transport->admin().CreateTopic({.name = topic}).ok());
  world_.group_settings += "    snapshots: items.backfill.feed\n";
  const auto missing = world_.Ctl(Command("--wait 1s"));
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("items.backfill.feed does not exist"));
  EXPECT_EQ(Backfills(), 0);
  ASSERT_TRUE(world_.transport->admin()
                  .CreateSubscription({.name = "projects/p/subscriptions/items.backfill.feed",
                                       .topic = topic,
                                       .ordering = true})
                  .ok());
  runner_ = world_.Runner();
  StartPublisher(topic);
  const auto done = world_.Ctl(Command());
  EXPECT_EQ(done.status, 0) << done.err << runner_->Errors();
}

TEST_F(ReplicateCtl, WhatCantBeFilledIsRefusedFirst) {
  runner_ = world_.Runner();
  world_.database.Run("CREATE TABLE rm.counters (id text PRIMARY KEY, n bigint)");
  world_.projection = kReplacing;
  const auto counts = world_.Ctl(Command());
  EXPECT_EQ(counts.status, 2);
  EXPECT_THAT(counts.err, HasSubstr("event type 'ItemChanged' is counted"));
  world_.projection = std::string(kStates) + "      ItemNamed: {merge: {a: a}}\n";
  EXPECT_THAT(world_.Ctl(Command()).err, HasSubstr("write `baseline: snapshot`"));
  world_.projection = kStates;
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM feed_state.consumer_groups") == 1; }));
  ASSERT_TRUE(world_.transport->admin().DeleteSubscription(world_.subscription).ok());
  EXPECT_THAT(world_.Ctl(Command()).err, HasSubstr("`lockstepctl provision`"));
  EXPECT_EQ(Backfills(), 0);
}

}  // namespace
}  // namespace lockstep::ctl
