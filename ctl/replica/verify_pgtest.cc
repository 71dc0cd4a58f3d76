// lockstepctl verify and repair, as an operator runs them beside a runner that works.
#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "ctl/testing/offsets_ctl.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/outbox_status.h"

namespace lockstep::ctl {
namespace {

using ::testing::HasSubstr;

constexpr char kItems[] = R"(backfill: items
outbox: shop.outbox
topic: shop.events
table: shop.items
key: [id]
aggregate_type: item
aggregate_id: id
version: version
event_type: ItemChanged
payload:
  fields: {id: id, a: a}
)";

// Items a (version 2), b and c, at the source as in the read model.
class VerifyCtl : public OffsetsCtl {
 protected:
  void SetUp() override {
    RunAndPublish();
    const auto migrated = world_.Ctl("migrate up --set outbox --database " + source_.url());
    ASSERT_EQ(migrated.status, 0) << migrated.err;
    ASSERT_EQ(world_.Ctl("outbox create shop.outbox --database " + source_.url()).status, 0);
    source_.Run(testing::StatusCanBeWritten("shop.outbox"));
    source_.Run(
        "CREATE TABLE shop.items (id text COLLATE \"en-x-icu\" PRIMARY KEY, version int, a text);"
        "INSERT INTO shop.items VALUES ('a', 2, '2'), ('b', 1, '1'), ('c', 1, '1')");
    std::ofstream(File("items.yaml")) << kItems;
  }
  std::string File(const std::string& name) const { return world_.folder + "/" + name; }
  std::string Files() const {
    return fmt::format("--declaration {} --group-file {} --schema feed_state ", File("items.yaml"),
                       File("feed.yaml"));
  }
  std::string Both(const std::string& more = "", const std::string& wait = "20s") const {
    return fmt::format("--declaration {} --group feed --source {} --grace 1s --wait {} {}",
                       File("items.yaml"), source_.url(), wait, more);
  }
  // "class key" of each difference, and whether they were seen again.
  std::string Found(const std::string& out) {
    const auto json = nlohmann::json::parse(out, nullptr, false);
    if (!json.is_object()) return "no JSON: " + out;
    std::string found = json["tables"][0]["confirmed"].get<bool>() ? "confirmed" : "once";
    for (const auto& one : json["tables"][0]["differences"]) {
      found +=
          fmt::format(", {} {}", one["class"].get<std::string>(), one["key"][0].get<std::string>());
    }
    return found;
  }

  testing::TestDatabase source_;
};

TEST_F(VerifyCtl, EndsWithZeroWhenEqualOneWhenNotTwoWhenItCantBeTold) {
  const auto equal = world_.Ctl("verify " + Both("--deep"));
  EXPECT_EQ(equal.status, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("rm.items (items): 3 rows at the source, 3 here, equal"));

  world_.database.Run(
      "UPDATE rm.items SET version = 1 WHERE id = 'a'; DELETE FROM rm.items WHERE id = 'b';"
      "UPDATE rm.items SET a = 'spoilt' WHERE id = 'c'; INSERT INTO rm.items VALUES ('d', 7)");
  const auto differ = world_.Ctl("verify --json " + Both("--deep"));
  EXPECT_EQ(differ.status, 1);
  EXPECT_EQ(Found(differ.out), "confirmed, behind a, missing b, content c, ghost d") << differ.err;
  EXPECT_THAT(differ.err, HasSubstr("4 rows differ"));
  EXPECT_EQ(Found(world_.Ctl("verify --json " + Both()).out),
            "confirmed, behind a, missing b, ghost d");

  source_.Run("ALTER TABLE shop.items RENAME TO gone");
  const auto broken = world_.Ctl("verify " + Both());
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, HasSubstr("the source shop.items"));
  EXPECT_EQ(world_.Ctl("verify --declaration nowhere.yaml --group feed --source x").status, 2);
  EXPECT_EQ(world_.Ctl("verify").status, 2);
}

TEST_F(VerifyCtl, ARowOfTheOutboxThatWaitsIsWaitedForAndNobodyRunningIsSaid) {
  source_.Run(
      "UPDATE shop.items SET version = 2 WHERE id = 'b';"
      "SELECT lockstep.enqueue('shop.outbox', topic => 'shop.events', aggregate_type => 'item',"
      " aggregate_id => 'b', event_type => 'ItemChanged', version => 2, payload => '{}'::bytea)");
  const auto unpublished = world_.Ctl("verify --json " + Both("", "2s"));
  EXPECT_EQ(unpublished.status, 2);  // it was seen once only
  EXPECT_THAT(unpublished.err, HasSubstr("whether rows differ can't be told"));
  EXPECT_EQ(Found(unpublished.out), "once, behind b") << unpublished.err;
  EXPECT_THAT(unpublished.out, HasSubstr("1 rows of shop.outbox have not been published"));
  source_.Run("UPDATE shop.outbox_status SET published_at = now()");
  runner_.reset();
  world_.database.Run("UPDATE feed_state.instances SET seen_at = now() - interval '1 hour'");
  const auto nobody = world_.Ctl("verify --json " + Both("", "2s"));
  EXPECT_EQ(Found(nobody.out), "once, behind b");
  EXPECT_THAT(nobody.out, HasSubstr("no runner of group feed is working"));
  std::ofstream(File("once.json")) << nobody.out;
  const auto refused = world_.Ctl("repair --from " + File("once.json") + " " + Both());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("nothing is repaired before a second look"));
}

TEST_F(VerifyCtl, RowsThatOnlyMoveAreNotCalledEqual) {
  world_.database.Run("INSERT INTO rm.items VALUES ('m', 1)");
  std::atomic<bool> done = false;
  std::thread moving([&] {
    const auto connection = world_.database.Connect();
    while (!done) {
      EXPECT_TRUE(connection->Run("UPDATE rm.items SET version = version + 1 WHERE id = 'm'").ok());
      std::this_thread::sleep_for(Millis(5));
    }
  });
  const auto ran = world_.Ctl("verify " + Both());
  done = true;
  moving.join();
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.out, HasSubstr("3 rows at the source, 4 here, 1 not decided"));
  EXPECT_THAT(ran.err, HasSubstr("not decided: 1 rows changed from look to look"));
  EXPECT_THAT(ran.err, HasSubstr("waiting until the group has passed the first look")) << ran.err;
}

TEST_F(VerifyCtl, ARunnerComparesByItselfSaysWhatToTypeAndFollowsAReload) {
  runner_.reset();
  world_.database.Run("DELETE FROM rm.items WHERE id = 'b'; INSERT INTO rm.items VALUES ('d', 7)");
  const std::string before = world_.group_settings;
  const auto schedule = [&](const std::string& every) {
    world_.group_settings =
        before + fmt::format(
                     "    verify: {{every: {}, grace: 0s, backfills: [items.yaml], source: "
                     "'{}'}}\n",
                     every, source_.url());
  };
  schedule("1s");
  const int port = testing::FreePort();
  world_.http = fmt::format("{{port: {}}}", port);
  runner_ = world_.Runner();
  const auto get = [&](const std::string& path) {
    return testing::HttpGet(fmt::format("http://127.0.0.1:{}{}", port, path));
  };
  const auto metric = [&](const std::string& line) {
    return world_.Await([&] { return get("/metrics").find(line) != std::string::npos; });
  };
  EXPECT_TRUE(metric("replica_differences{class=\"missing\",group=\"feed\"} 1")) << get("/metrics");
  EXPECT_TRUE(metric("replica_differences{class=\"ghost\",group=\"feed\"} 1"));
  EXPECT_TRUE(metric("replica_rows_verified{group=\"feed\"} 3")) << get("/metrics");
  ASSERT_TRUE(world_.AwaitLog(*runner_, "rows of the read model differ from their source"));
  // The log, and the page, say what to type next.
  const std::string typed =
      fmt::format("--declaration '{}' --source '{}'", File("items.yaml"), source_.url());
  EXPECT_THAT(runner_->Errors(), HasSubstr("verify " + typed + " --group 'feed'"));
  EXPECT_TRUE(world_.Await([&] {
    return get("/api/status").find("2 rows of projection items of group feed differ") !=
           std::string::npos;
  })) << get("/api/status");
  EXPECT_EQ(world_.Ctl("verify " + typed + " --group 'feed' --grace 1s").status, 1);

  // Mended, they are no longer counted, without a restart.
  world_.database.Run("INSERT INTO rm.items VALUES ('b', 1); DELETE FROM rm.items WHERE id = 'd'");
  EXPECT_TRUE(metric("replica_differences{class=\"missing\",group=\"feed\"} 0"));
  EXPECT_TRUE(metric("replica_differences{class=\"ghost\",group=\"feed\"} 0"));

  // Never again: what is in the state schema stands still.
  schedule("0s");
  world_.Ctl("lag");  // writes the files
  runner_->Signal(SIGHUP);
  ASSERT_TRUE(world_.AwaitLog(*runner_, "verify.every value=0"));
  world_.database.Run("DELETE FROM rm.items WHERE id = 'b'");
  const auto last = [&] {
    return world_.Count(
        "SELECT (extract(epoch FROM max(updated_at)) * 1000000)::bigint FROM "
        "feed_state.verifications");
  };
  int64_t seen = last();  // a range may be under way
  ASSERT_TRUE(world_.Await([&] {
    std::this_thread::sleep_for(Millis(1'500));
    return std::exchange(seen, last()) == last();
  }));
  runner_->Signal(SIGTERM);
  EXPECT_EQ(runner_->Wait(), 0);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.verifications WHERE lease_token IS NOT "
                         "NULL"),
            0);
}

TEST_F(VerifyCtl, FilesTellTheSame) {
  const auto exported = world_.Ctl("verify export --database " + source_.url() + " " + Files());
  ASSERT_EQ(exported.status, 0) << exported.err;
  std::ofstream(File("ranges.jsonl")) << exported.out;
  const std::string compare = "verify compare --grace 1s " + Files();
  EXPECT_EQ(world_.Ctl(compare + File("ranges.jsonl")).status, 0);

  world_.database.Run("DELETE FROM rm.items WHERE id = 'b'");
  const auto open = world_.Ctl(compare + File("ranges.jsonl") + " --ranges " + File("open.jsonl"));
  EXPECT_EQ(open.status, 1);
  EXPECT_THAT(open.out, HasSubstr("0 differ, 1 ranges are open")) << open.err;
  const auto keys = [&] {
    const auto ran = world_.Ctl("verify export --database " + source_.url() + " --ranges " +
                                File("open.jsonl") + " " + Files());
    std::ofstream(File("keys.jsonl")) << ran.out;
    return world_.Ctl("--json " + compare + File("keys.jsonl") + " --ranges " + File("open.jsonl"));
  };
  const auto perhaps = keys();  // it may have been deleted since
  EXPECT_EQ(perhaps.status, 1);
  EXPECT_EQ(Found(perhaps.out), "confirmed") << perhaps.err;
  const auto found = keys();
  EXPECT_EQ(found.status, 1);
  EXPECT_EQ(Found(found.out), "confirmed, missing b") << found.err;
}

TEST_F(VerifyCtl, AnExportWaitsUntilTheEventsOfItsRowsArePublished) {
  source_.Run(
      "UPDATE shop.items SET version = 2 WHERE id = 'b';"
      "SELECT lockstep.enqueue('shop.outbox', topic => 'shop.events', aggregate_type => 'item',"
      " aggregate_id => 'b', event_type => 'ItemChanged', version => 2, payload => '{}'::bytea)");
  const std::string exporting = "verify export --database " + source_.url() + " " + Files();
  const auto waits = world_.Ctl(exporting + " --wait 1s");
  EXPECT_EQ(waits.status, 2);
  EXPECT_EQ(waits.out, "");
  EXPECT_THAT(waits.err, HasSubstr("1 rows of shop.outbox have not been published within 1s"));
  source_.Run("UPDATE shop.outbox_status SET published_at = now(), message_id = '7'");
  const auto exported = world_.Ctl(exporting + " --wait 1s");
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("\"aggregate\":\"item/b\",\"version\":2"));
}

TEST_F(VerifyCtl, ARepairIsShownThenHandedToThePublisherAndAudited) {
  world_.database.Run("DELETE FROM rm.items WHERE id = 'b'; INSERT INTO rm.items VALUES ('d', 7)");
  const auto shown = world_.Ctl("repair --dry-run " + Both());
  EXPECT_EQ(shown.status, 1);
  EXPECT_THAT(shown.out, HasSubstr("rm.items: 1 rows to send again, 0 ghosts to delete"))
      << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("1 ghosts stay: --delete-ghosts deletes them"));
  EXPECT_EQ(source_.QueryInt("SELECT count(*) FROM lockstep.backfills"), 0);

  const auto foreign = world_.Ctl("repair --dry-run --delete-ghosts " + Both());
  EXPECT_EQ(foreign.status, 1);
  EXPECT_THAT(foreign.out, HasSubstr("rm.items: 1 rows to send again, 0 ghosts to delete"));
  EXPECT_THAT(foreign.out, HasSubstr("1 ghosts stay: rm.items has no `aggregate` column"));
  EXPECT_THAT(world_.Ctl("repair --yes " + Both()).err, HasSubstr("--reason"));
  const auto begun = world_.Ctl(
      "repair --delete-ghosts --whole-table --no-wait --yes --json --reason "
      "'ticket 7' " +
      Both());
  EXPECT_EQ(begun.status, 0) << begun.err;
  EXPECT_EQ(source_.QueryInt("SELECT count(*) FROM lockstep.backfill_keys WHERE key = '{b}' AND "
                             "ghost IS NULL"),
            1);
  EXPECT_EQ(source_.QueryInt("SELECT count(*) FROM lockstep.backfill_keys WHERE "
                             "ghost ->> 'aggregate_id' = 'd' AND ghost ->> 'version' = '7'"),
            1);
  EXPECT_EQ(source_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE note LIKE "
                             "'%ticket 7%'"),
            1);
  // The read model is as it was: only the runner writes it.
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE id IN ('b', 'd')"), 1);
}

TEST_F(VerifyCtl, WhatAFileSaysIsLookedAtAgainBeforeItIsRepaired) {
  world_.database.Run(
      "DELETE FROM rm.items WHERE id = 'b'; INSERT INTO rm.items VALUES ('d', 7);"
      "UPDATE rm.items SET a = 'spoilt' WHERE id = 'c'");
  const auto found = world_.Ctl("verify --json " + Both("--deep"));
  ASSERT_EQ(Found(found.out), "confirmed, missing b, content c, ghost d") << found.err;
  const auto as_found = nlohmann::json::parse(found.out);
  const auto repair = [&](const nlohmann::json& file, const std::string& more) {
    std::ofstream(File("found.json")) << file.dump();
    return world_.Ctl("repair --delete-ghosts --whole-table --from " + File("found.json") + " " +
                      Both(more));
  };
  auto other = as_found;
  other["group"] = "another";
  auto refused = repair(other, "--deep");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("of backfill items and group another"));
  other = as_found;
  other["tables"][0]["more"] = 3;
  EXPECT_THAT(repair(other, "--deep").err, HasSubstr("leaves out 3 differences"));
  EXPECT_THAT(repair(as_found, "").err, HasSubstr("give --deep"));
  EXPECT_THAT(repair(as_found, "--deep").out,
              HasSubstr("rm.items: 2 rows to send again, 1 ghosts to delete"));

  // What was true then is not true for ever.
  source_.Run("INSERT INTO shop.items VALUES ('d', 7, NULL)");
  world_.database.Run("INSERT INTO rm.items VALUES ('b', 1)");
  const auto later = repair(as_found, "--deep");
  EXPECT_THAT(later.out, HasSubstr("0 ghosts to delete")) << later.err;
}

TEST_F(VerifyCtl, NeitherSideCanBeWritten) {
  source_.Run(
      "CREATE TABLE shop.touched (n int); CREATE FUNCTION shop.touch() RETURNS bool VOLATILE "
      "LANGUAGE sql AS 'INSERT INTO shop.touched VALUES (1) RETURNING true'");
  std::string query = kItems;
  const std::string table = "table: shop.items";
  query.replace(query.find(table), table.size(),
                "query: \"SELECT * FROM shop.items WHERE shop.touch()\"");
  std::ofstream(File("items.yaml")) << query;
  const auto refused = world_.Ctl("verify " + Both());
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("read-only transaction"));
}

}  // namespace
}  // namespace lockstep::ctl
