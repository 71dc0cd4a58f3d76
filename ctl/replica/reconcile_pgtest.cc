// lockstepctl reconcile, as an operator runs it: with both databases, and by a file.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "ctl/testing/source_world.h"

namespace lockstep::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ReconcileCtl : public SourceWorld {
 protected:
  void SetUp() override {
    SourceWorld::SetUp();
    first_ = Publish("first", 1);
    AwaitInbox(1);
    for (const char* item : {"a", "b", "c"}) ids_[item] = Publish(item, 1);
    ids_["dead"] = Publish("a", 2, "not JSON");
    ids_["parked"] = Publish("a", 3);
    last_ = Publish("last", 1);
    AwaitInbox(7);
    // Its lanes have said that they are idle: the offset is that of the newest.
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count(
                 "SELECT count(*) FROM feed_state.group_offsets WHERE publish_time = (SELECT "
                 "max(publish_time) FROM feed_state.offsets)") == 1;
    }));
    Enqueue("d", 1, "NULL");                                   // not published yet
    Enqueue("e", 1, "clock_timestamp() + interval '1 hour'");  // not delivered yet
  }
  json Both(int status = 0) { return Json("reconcile --group feed --grace 0s" + Source(), status); }
  std::string File() const { return world_.folder + "/ledger"; }
  json ByFile(int status = 0) {
    EXPECT_EQ(Json("reconcile export '" + File() + "'" + Source())["events"],
              world_.Count("SELECT count(*) FROM shop.outbox"));
    return Json("reconcile compare '" + File() + "' --group feed --grace 0s", status);
  }

  std::string first_, last_;
  std::map<std::string, std::string> ids_;
};

TEST_F(ReconcileCtl, EveryEventHasItsClassAndNothingIsMissing) {
  world_.database.Run(
      "UPDATE shop.outbox_status SET message_id = (SELECT message_id FROM "
      "feed_state.group_offsets) WHERE "
      "event_id = '" +
      last_ + "'");
  for (const json& result : {Both(), ByFile()}) {
    const json& counts = result["counts"];
    EXPECT_EQ(counts["applied"], 5) << result;
    EXPECT_EQ(counts["dead"], 1) << result;
    EXPECT_EQ(counts["parked"], 1) << result;
    EXPECT_EQ(counts["unpublished"], 1) << result;
    EXPECT_EQ(counts["on_its_way"], 1) << result;
    EXPECT_EQ(counts["missing"], 0) << result;
    EXPECT_EQ(counts["orphans"], 0) << result;
    EXPECT_EQ(counts["entries"], 7) << result;
    EXPECT_EQ(result["offset"]["event_id"], last_) << result;
  }
  EXPECT_THAT(world_.Ctl("reconcile --group feed" + Source()).out, HasSubstr("0  missing"));
}

TEST_F(ReconcileCtl, TellsWhatBecameOfThoseThatCame) {
  const std::string newer = Publish("late", 5);
  AwaitInbox(8);
  Publish("late", 4);  // after a later one
  AwaitInbox(9);
  world_.database.Run("UPDATE feed_state.inbox SET fate = 'i' WHERE event_id = '" + ids_["b"] +
                      "'");
  // Its dead letter is resolved, and not kept any longer.
  world_.database.Run("UPDATE feed_state.inbox SET fate = 'd' WHERE event_id = '" + ids_["c"] +
                      "'");
  for (const json& result : {Both(), ByFile()}) {
    const json& counts = result["counts"];
    EXPECT_EQ(counts["applied"], 4) << result;  // first, a, last, the newer
    EXPECT_EQ(counts["superseded"], 1) << result;
    EXPECT_EQ(counts["ignored"], 1) << result;
    EXPECT_EQ(counts["discarded"], 1) << result;
    EXPECT_EQ(counts["dead"], 1) << result;
    EXPECT_EQ(counts["parked"], 1) << result;
  }
  world_.database.Run(
      "UPDATE feed_state.dead_letters SET state = 'discarded', resolved_at = now()");
  EXPECT_EQ(Both()["counts"]["discarded"], 2);
}

TEST_F(ReconcileCtl, WhatTheSourceHoldsBackHasItsReason) {
  const std::string dead = Enqueue("f", 1, "NULL"), held = Enqueue("g", 1, "NULL");
  world_.database.Run(
      "UPDATE shop.outbox_status SET dead_at = now(), available_at = 'infinity' WHERE event_id = "
      "'" +
      dead + "'");
  world_.database.Run(
      "UPDATE shop.outbox_status SET dead_at = now(), quarantined_at = now(), available_at = "
      "'infinity' "
      "WHERE event_id = '" +
      held + "'");
  for (const json& result : {Both(), ByFile()}) {
    EXPECT_EQ(result["counts"]["dead_at_source"], 1) << result;
    EXPECT_EQ(result["counts"]["quarantined"], 1) << result;
    EXPECT_EQ(result["counts"]["unpublished"], 1) << result;
  }
}

// One of its topics does not go to the group's subscription, and a second outbox does.
TEST_F(ReconcileCtl, OutboxesAndTopicsAreThoseThatAreNamed) {
  world_.database.Run(
      "SELECT lockstep.create_outbox('shop.second');" + testing::StatusCanBeWritten("shop.second") +
      "INSERT INTO shop.second (event_id, topic, "
      "aggregate_type, aggregate_id, event_type, version, payload, content_type) "
      "SELECT event_id, topic, aggregate_type, aggregate_id, event_type, version, payload, "
      "content_type FROM shop.outbox WHERE event_id = '" +
      ids_["c"] +
      "'; UPDATE shop.second_status s SET published_at = o.published_at FROM shop.outbox_status o "
      "WHERE s.event_id = o.event_id; DELETE FROM shop.outbox WHERE event_id = '" +
      ids_["c"] + "'");
  Enqueue("elsewhere", 1, "now() - interval '1 minute'");
  world_.database.Run(
      "UPDATE shop.outbox SET topic = 'shop.other' WHERE aggregate_id = 'elsewhere'; UPDATE "
      "feed_state.slots SET first_publish_time = now() - interval '1 hour'");
  const std::string both = "reconcile --group feed --grace 0s" + Source() + "--outbox shop.second ";
  const json missing = Json(both, 1);
  ASSERT_EQ(missing["missing"].size(), 1u) << missing;
  EXPECT_EQ(missing["missing"][0]["aggregate"], "item/elsewhere");
  const json result = Json(both + "--topic shop.item");
  EXPECT_EQ(result["counts"]["applied"], 5) << result;
  EXPECT_EQ(result["counts"]["orphans"], 0) << result;
}

TEST_F(ReconcileCtl, NoEventIsLostBetweenThePagesOfTwoOutboxes) {
  world_.database.Run("SELECT lockstep.create_outbox('shop.second')");
  world_.database.Run(testing::StatusCanBeWritten("shop.second"));
  for (const char* const table : {"shop.outbox", "shop.second"}) {
    world_.database.Run(fmt::format(
        "INSERT INTO {0} (event_id, topic, aggregate_type, aggregate_id, event_type, version, "
        "payload, content_type) SELECT gen_random_uuid(), 'shop.item', 'item', "
        "'many' || n, 'ItemChanged', 1, '', 'application/json' FROM generate_series(1, 6000) n;"
        "DELETE FROM {0}_pending p USING {0} e WHERE e.sequence = p.sequence AND e.aggregate_id "
        "LIKE 'many%'; INSERT INTO {0}_published (sequence, published_at, attempts) SELECT "
        "sequence, now() + interval '1 hour', 0 FROM {0} WHERE aggregate_id LIKE 'many%'",
        table));
  }
  const std::string both = Source() + "--outbox shop.second ";
  EXPECT_EQ(Json("reconcile --group feed --grace 0s" + both)["counts"]["on_its_way"], 12'001);
  EXPECT_EQ(Json("reconcile export '" + File() + "'" + both)["events"], 12'009);
  EXPECT_EQ(
      Json("reconcile compare '" + File() + "' --group feed --grace 0s")["counts"]["on_its_way"],
      12'001);
}

// What a snapshot brought need not have come.
TEST_F(ReconcileCtl, AnEventThatASnapshotCoversIsNotMissing) {
  world_.database.Run("DELETE FROM feed_state.inbox WHERE event_id IN ('" + ids_["b"] + "', '" +
                      ids_["c"] + "')");
  world_.database.Run(
      "UPDATE feed_state.key_state SET snapshot_version = CASE aggregate_key WHEN 'item/b' THEN 1 "
      "ELSE 0 END WHERE aggregate_key IN ('item/b', 'item/c')");
  for (const json& result : {Both(1), ByFile(1)}) {
    EXPECT_EQ(result["counts"]["covered"], 1) << result;
    ASSERT_EQ(result["missing"].size(), 1u) << result;
    EXPECT_EQ(result["missing"][0]["event_id"], ids_["c"]);
  }
  EXPECT_EQ(Json("trace " + ids_["b"] + Source())["groups"][0]["verdict"],
            "not received; a snapshot of version 1 covers it");
}

TEST_F(ReconcileCtl, AnEventThatNeverCameIsMissing) {
  world_.database.Run("DELETE FROM feed_state.inbox WHERE event_id = '" + ids_["b"] + "'");
  for (const json& result : {Both(1), ByFile(1)}) {
    EXPECT_EQ(result["counts"]["missing"], 1) << result;
    EXPECT_EQ(result["counts"]["applied"], 4) << result;
    ASSERT_EQ(result["missing"].size(), 1u);
    EXPECT_EQ(result["missing"][0]["event_id"], ids_["b"]);
    EXPECT_EQ(result["missing"][0]["aggregate"], "item/b");
    EXPECT_EQ(result["confirmed"], true) << result;
  }
  EXPECT_THAT(world_.Ctl("reconcile --group feed --grace 0s" + Source()).err,
              HasSubstr("1 published events never reached group 'feed'"));
}

TEST_F(ReconcileCtl, AnInboxEntryWithoutItsRowIsAnOrphan) {
  world_.database.Run("DELETE FROM shop.outbox WHERE event_id = '" + ids_["c"] + "'");
  // A backfill's event has no row, and needs none.
  world_.database.Run(
      "INSERT INTO feed_state.inbox (generation, event_id) SELECT generation, "
      "'aaaaaaaa-bbbb-5ccc-8ddd-eeeeeeeeeeee' FROM feed_state.active_slots");
  for (const json& result : {Both(1), ByFile(1)}) {
    EXPECT_EQ(result["counts"]["orphans"], 1) << result;
    EXPECT_EQ(result["counts"]["snapshots"], 1) << result;
    EXPECT_EQ(result["orphans"][0]["event_id"], ids_["c"]);
    EXPECT_EQ(result["counts"]["missing"], 0) << result;
  }
}

TEST_F(ReconcileCtl, WithoutAWaitWhatIsMissingMayBeLateOnly) {
  world_.database.Run("DELETE FROM feed_state.inbox WHERE event_id = '" + ids_["b"] + "'");
  const json result = Json("reconcile --group feed --grace 0s --wait 0s" + Source(), 1);
  EXPECT_EQ(result["counts"]["missing"], 1) << result;
  EXPECT_EQ(result["confirmed"], false) << result;
  EXPECT_THAT(world_.Ctl("reconcile --group feed --grace 0s --wait 0s" + Source()).out,
              HasSubstr("What is missing may be late only: "));
}

// The entry whose row is not there may be its: an outbox that deletes what it has published.
TEST_F(ReconcileCtl, AnOutboxThatKeepsNothingLeavesNoOrphans) {
  world_.database.Run("SELECT lockstep.create_outbox('shop.empty')");
  world_.database.Run("DELETE FROM shop.outbox WHERE event_id = '" + ids_["c"] + "'");
  const std::string both = Source() + "--outbox shop.empty ";
  const json result = Json("reconcile --group feed --grace 0s" + both);
  EXPECT_EQ(result["counts"]["orphans"], 0) << result;
  EXPECT_EQ(result["counts"]["applied"], 4) << result;
  Json("reconcile export '" + File() + "'" + both);
  EXPECT_EQ(Json("reconcile compare '" + File() + "' --group feed --grace 0s")["counts"]["orphans"],
            0);
}

// Its row is older than what was asked for, and it came late: asking for the row itself tells.
TEST_F(ReconcileCtl, ARowFromBeforeTheWindowIsNoOrphan) {
  world_.database.Run(
      "UPDATE shop.outbox_status SET published_at = now() - interval '3 days' WHERE event_id IN "
      "('" +
      ids_["c"] + "', '" + first_ + "')");
  const json result = Both();
  EXPECT_EQ(result["counts"]["applied"], 3) << result;
  EXPECT_EQ(result["counts"]["orphans"], 0) << result;
}

TEST_F(ReconcileCtl, WhatAResetLeftOutIsNotMissing) {
  world_.database.Run("DELETE FROM feed_state.inbox WHERE event_id = '" + ids_["b"] + "'");
  world_.database.Run("UPDATE feed_state.consumer_groups SET skip_before = now()");
  EXPECT_EQ(Both()["counts"]["left_out"], 1);
}

// A page may have to pass over very many rows: no session's usual time limit ends that.
TEST_F(ReconcileCtl, ItsPagesAreGivenTime) {
  const std::string role = "reconcile_reader_" + std::to_string(::getpid());
  world_.database.Run(
      "CREATE ROLE " + role + " LOGIN; SELECT lockstep.grant_reader('shop.outbox', '" + role +
      "'); ALTER TABLE shop.outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY patient "
      "ON shop.outbox USING (current_setting('statement_timeout') = '1h')");
  std::string url = world_.database_url;
  const size_t user = url.find("//") + 2;
  url.replace(user, url.find('@') - user, role);
  const std::string source = " --outbox shop.outbox --source '" + url + "'";
  EXPECT_EQ(Json("reconcile --group feed --grace 0s" + source)["counts"]["applied"], 5);
  EXPECT_EQ(Json("reconcile export '" + File() + "'" + source)["events"], 9);
  world_.database.Run("DROP OWNED BY " + role + "; DROP ROLE " + role);
}

TEST_F(ReconcileCtl, ADamagedFileIsRefusedWithASentence) {
  ByFile();
  std::ifstream in(File());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 11u);
  const auto refused = [&](const std::vector<std::string>& content) {
    std::ofstream out(File(), std::ios::trunc);
    for (const std::string& line : content) out << line << '\n';
    out.close();
    const auto ran = world_.Ctl("reconcile compare '" + File() + "' --group feed");
    EXPECT_EQ(ran.status, 1);
    return ran.err;
  };
  EXPECT_THAT(refused({lines.begin(), lines.end() - 1}), HasSubstr("cut off or damaged after 9"));
  auto fewer = lines;
  fewer.erase(fewer.begin() + 3);
  EXPECT_THAT(refused(fewer), HasSubstr("does not have as many events as it says"));
  auto swapped = lines;
  std::swap(swapped[2], swapped[4]);
  EXPECT_THAT(refused(swapped), HasSubstr("not in the order of their ids"));
  for (const char* const wrong :
       {R"({"event_id": 7})", R"({"event_id": "}, {"})", R"({"events": "9"})",
        R"({"event_id": "AAAAAAAA-bbbb-4ccc-8ddd-eeeeeeeeeeee"})",
        R"({"event_id": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "version": "1"})"}) {
    EXPECT_THAT(refused({lines[0], wrong}), HasSubstr("damaged after 0")) << wrong;
  }
  EXPECT_THAT(refused({R"({"format": 1})"}), HasSubstr("is no file of lockstepctl reconcile"));
  EXPECT_THAT(refused({R"({"format": "lockstep-reconcile-1", "since": 5})"}),
              HasSubstr("is no file of lockstepctl reconcile"));
  EXPECT_THAT(refused({"{}"}), HasSubstr("is no file of lockstepctl reconcile export"));
  EXPECT_THAT(world_.Ctl("reconcile --group feed").err, HasSubstr("name the source's database"));
  EXPECT_THAT(world_.Ctl("reconcile --group feed --since 90d" + Source()).err,
              HasSubstr("the inbox forgets events after"));
}

}  // namespace
}  // namespace lockstep::ctl
