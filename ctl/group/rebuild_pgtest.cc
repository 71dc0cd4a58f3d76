// lockstepctl rebuild, as an operator runs it beside a runner that works.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ctl/testing/backfill_ctl.h"

namespace lockstep::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RebuildCtl : public OffsetsCtl {
 protected:
  void SetUp() override {
    const auto kept = world_.transport->admin().UpdateTopic(
        {.name = world_.topic, .retention = std::chrono::hours(24)},
        {"message_retention_duration"});
    ASSERT_TRUE(kept.ok()) << kept.status();
    RunAndPublish();
  }
  BinaryWorld::Ran Rebuild(const std::string& arguments) {
    return world_.Ctl("rebuild " + arguments);
  }
  int64_t SlotTables() {
    return world_.Count("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '__slot'");
  }
  size_t Subscriptions() {
    return world_.transport->admin().ListSubscriptions(world_.project)->size();
  }
};

TEST_F(RebuildCtl, SwapsRollsBackAndLeavesNothingBehind) {
  const auto refused = Rebuild("feed --from earliest --reason test --yes");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("trigger"));
  EXPECT_THAT(refused.err, HasSubstr("`lockstepctl offsets reset feed --empty`"));
  world_.database.Run("DROP TRIGGER wait ON rm.items");

  const auto unasked = Rebuild("feed --from earliest --reason test");
  EXPECT_EQ(unasked.status, 1);
  EXPECT_THAT(unasked.err, HasSubstr("about 4"));
  EXPECT_THAT(unasked.err, HasSubstr("Repeat with --yes"));
  EXPECT_EQ(SlotTables(), 0);

  const auto done = Rebuild("feed --from earliest --reason 'titles were cut' --yes");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("rm.items: 3 rows, 3 in the new table, checksums equal"));
  EXPECT_THAT(done.out, HasSubstr("Swapped"));
  EXPECT_THAT(Rebuild("status feed").out, HasSubstr("swapped"));
  world_.Publish("d", 1);
  EXPECT_TRUE(AwaitRight(4)) << runner_->Errors();

  // The refusal comes before the question.
  const auto early = Rebuild("finish feed");
  EXPECT_EQ(early.status, 1);
  EXPECT_THAT(early.err, HasSubstr("are kept until"));
  EXPECT_THAT(early.err, Not(HasSubstr("Repeat with --yes")));

  const auto back = Rebuild("rollback feed --reason test --yes");
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_TRUE(AwaitRight(4)) << runner_->Errors();
  EXPECT_EQ(SlotTables(), 0);
  EXPECT_EQ(Subscriptions(), 1u);
}

TEST_F(RebuildCtl, FromACheckpointHoldsWhatCameSince) {
  world_.database.Run("DROP TRIGGER wait ON rm.items");
  ASSERT_EQ(world_.Ctl("checkpoint create feed").status, 0);
  world_.Publish("d", 1);
  ASSERT_TRUE(AwaitRight(4));
  const std::string command = "feed --from checkpoint --reason test --yes";
  EXPECT_THAT(Rebuild(command).err, HasSubstr("add --accept-missing if that is wanted"));
  const auto differs = Rebuild(command + " --accept-missing");
  EXPECT_EQ(differs.status, 1);
  EXPECT_THAT(differs.err, HasSubstr("(a) is missing in the new table"));
  EXPECT_THAT(differs.err, HasSubstr("nothing was swapped"));
  EXPECT_EQ(Right(), 4);
  const auto done = Rebuild("resume feed --accept-differences");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE id = 'd'"), 1);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items"), 1);
  const auto finished = Rebuild("finish feed --now --yes");
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("The group reads " + world_.subscription + ".slot2"),
                                  HasSubstr("go on naming " + world_.subscription + ":")));
  EXPECT_EQ(SlotTables(), 0);
  EXPECT_EQ(Subscriptions(), 1u);
}

// Of a topic that keeps nothing.
using RebuildFromBackfillCtl = BackfillCtl;

TEST_F(RebuildFromBackfillCtl, TakesTheSourcesRowsOver) {
  runner_ = world_.Runner();
  world_.Publish("a", 2);
  world_.Publish("ghost", 1);
  ASSERT_TRUE(world_.Await([&] { return world_.Count("SELECT count(*) FROM rm.items") == 2; }));
  const std::string start = "rebuild feed --from backfill --reason test --yes ";
  EXPECT_THAT(world_.Ctl(start).err, HasSubstr("--declaration"));
  EXPECT_THAT(world_.Ctl("rebuild feed --from earliest --reason test " + Declaration()).err,
              HasSubstr("goes with --from backfill"));
  StartPublisher();
  const auto differs = world_.Ctl(start + Declaration() + Source());
  EXPECT_EQ(differs.status, 1);
  EXPECT_THAT(differs.err, HasSubstr("from          backfill items"));
  EXPECT_THAT(differs.err, HasSubstr("(ghost) is missing in the new table"));
  const auto status = world_.Ctl("rebuild status feed --json");
  const auto json = nlohmann::json::parse(status.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << status.out;
  EXPECT_EQ(json["from"], "backfill");
  EXPECT_EQ(Backfills("id::text = '" + json["backfills"]["items"].get<std::string>() + "'"), 1);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'rebuild.began' AND "
                         "new -> 'backfills' ? 'items'"),
            1);

  EXPECT_THAT(world_.Ctl("rebuild resume feed --accept-differences").err, HasSubstr("--source"));
  const auto done = world_.Ctl("rebuild resume feed --accept-differences " + Source());
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE a = version::text"), 3);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items"), 3);
  EXPECT_EQ(world_.Ctl("rebuild finish feed --now --yes").status, 0);
  EXPECT_EQ(Backfills(), 1);
}

TEST_F(RebuildFromBackfillCtl, OneThatLosesItsDatabaseSaysHowItStandsAndHowToGoOn) {
  runner_ = world_.Runner();
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM feed_state.consumer_groups") == 1; }));
  testing::Process driver("lockstepctl",
                          {"--config", world_.folder + "/runner.yaml", "rebuild", "feed", "--from",
                           "backfill", "--declaration", world_.folder + "/items.yaml", "--source",
                           source_.url(), "--reason", "test", "--yes"});
  ASSERT_TRUE(world_.Await([&] { return Backfills("state = 'running'") == 1; })) << driver.Errors();
  world_.database.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
      "'lockstepctl' AND datname = current_database()");
  EXPECT_EQ(driver.Wait(), 1);
  EXPECT_THAT(driver.Errors(), AllOf(HasSubstr("connection to the database was lost"),
                                     HasSubstr("filling: `rebuild resume feed --source"),
                                     HasSubstr("`rebuild abort feed")));
}

TEST_F(RebuildFromBackfillCtl, AnAbortedOneCancelsItsBackfillUnlessItIsToGoOn) {
  runner_ = world_.Runner();
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM feed_state.consumer_groups") == 1; }));
  for (const bool keep : {false, true}) {
    {
      testing::Process killed(
          "lockstepctl", {"--config", world_.folder + "/runner.yaml", "rebuild", "feed", "--from",
                          "backfill", "--declaration", world_.folder + "/items.yaml", "--source",
                          source_.url(), "--reason", "test", "--yes"});
      ASSERT_TRUE(world_.Await([&] { return Backfills("state = 'running'") == 1; }))
          << killed.Errors();
    }
    const auto refused = world_.Ctl("rebuild abort feed --yes");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, HasSubstr("--keep-backfill"));
    const auto aborted =
        world_.Ctl("rebuild abort feed --yes " + (keep ? "--keep-backfill" : Source()));
    EXPECT_EQ(aborted.status, 0) << aborted.err;
    EXPECT_EQ(Backfills("state = 'cancelled'"), 1);
    EXPECT_EQ(Backfills("state = 'running'"), keep ? 1 : 0);
    EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.rebuilds"), 0);
  }
}

}  // namespace
}  // namespace lockstep::ctl
