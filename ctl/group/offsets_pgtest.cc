// lockstepctl offsets, replay and checkpoint, as an operator runs them beside a runner that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "ctl/testing/offsets_ctl.h"

namespace lockstep::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(OffsetsCtl, AResetOverwritesWhatWasSpoiltAndCountsNothingTwice) {
  RunAndPublish();
  world_.database.Run("UPDATE rm.items SET a = 'spoilt'");
  const std::string reset =
      "offsets reset feed --overwrite --reason 'spoilt by hand' --to-time " + before_;

  const auto dry = world_.Ctl(reset + " --dry-run");
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("to          " + before_));
  EXPECT_THAT(dry.out, HasSubstr("about 4 events"));
  EXPECT_THAT(dry.out, HasSubstr("overwrites its own version in rm.items"));
  EXPECT_THAT(dry.out, HasSubstr("nothing is counted twice in rm.counters"));
  EXPECT_THAT(dry.out, HasSubstr("changes nothing there; `lockstepctl rebuild feed` fills them"));
  EXPECT_THAT(dry.out, HasSubstr("Nothing was changed: this was a dry run"));
  EXPECT_EQ(Epoch(), 1);
  EXPECT_EQ(Right(), 0);

  const auto done = world_.Ctl(reset + " --yes");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("Done: epoch 2."));
  EXPECT_TRUE(AwaitRight(3)) << runner_->Errors();
  ExpectEachCountedOnce();
  const auto history = world_.Ctl("offsets history feed");
  EXPECT_THAT(history.out, HasSubstr("spoilt by hand"));
  EXPECT_THAT(history.out, HasSubstr("overwrite"));

  // What is published since is judged as ever.
  world_.Publish("b", 1, R"({"id":"b","a":"forked"})", Uuid(77));
  EXPECT_TRUE(world_.Await([&] {
    return world_.Count(
               "SELECT count(*) FROM feed_state.dead_letters WHERE code = "
               "'EVENT.VERSION_CONFLICT'") == 1;
  }));
  EXPECT_EQ(Right(), 3);
}

TEST_F(OffsetsCtl, AReplayEndsWhenItsRangeIsAppliedAgainAndLeavesTheRestAlone) {
  RunAndPublish();
  world_.database.Run("UPDATE rm.items SET a = 'spoilt'");
  const auto replay = world_.Ctl(
      fmt::format("replay feed --from {} --to {} --reason test --yes", before_, between_));
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_EQ(Right(), 2) << "a and b, with no more waiting";
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE id = 'c' AND a = 'spoilt'"), 1);
  EXPECT_THAT(replay.err, HasSubstr("100%  4 of about 4"));
  ExpectEachCountedOnce();
}

// docs/iam.md: with roles/pubsub.subscriber and no more.
TEST_F(OffsetsCtl, WithoutTheRightToSnapshotsCheckpointsAreOffAndAllElseWorks) {
  emulator::FaultOptions rights;
  rights.refuse = 1;
  rights.refuse_status = absl::StatusCode::kPermissionDenied;
  rights.refuse_method = "GetSubscription,CreateSnapshot,GetSnapshot,ListSnapshots,DeleteSnapshot";
  world_.server.faults().Set(rights);
  world_.group_settings += "    checkpoints: true\n    checkpoint_every: 100ms\n";
  RunAndPublish();
  ASSERT_TRUE(world_.AwaitLog(*runner_, "no right to take snapshots: checkpoints are off"));

  const auto create = world_.Ctl("checkpoint create feed");
  EXPECT_EQ(create.status, 1);
  EXPECT_THAT(create.err, HasSubstr("no right to take a snapshot of " + world_.subscription));
  const auto reset =
      world_.Ctl("offsets reset feed --overwrite --reason test --yes --to-time " + before_);
  EXPECT_EQ(reset.status, 0) << reset.err;
  EXPECT_THAT(reset.err, HasSubstr("could not be read: no right to"));
  ASSERT_TRUE(AwaitSought(2)) << runner_->Errors();
  // The session after the reset would have asked again by now.
  world_.Publish("d", 1);
  ASSERT_TRUE(AwaitRight(4));
  EXPECT_EQ(Times(runner_->Errors(), "checkpoints are off"), 1) << runner_->Errors();
  EXPECT_EQ(Times(runner_->Errors(), "no right to list snapshots"), 1) << runner_->Errors();
  EXPECT_THAT(runner_->Errors(), Not(HasSubstr("level=error")));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.checkpoints"), 0);

  // The control: with the rights, a new runner takes them; that it may not delete them is no
  // matter.
  rights.refuse_method = "DeleteSnapshot";
  world_.server.faults().Set(rights);
  world_.group_settings += "    checkpoint_keep: 100ms\n";
  runner_->Signal(SIGTERM);
  EXPECT_EQ(runner_->Wait(), 0);
  runner_ = world_.Runner();
  EXPECT_TRUE(world_.Await([&] {
    return world_.Count("SELECT coalesce(max(number), 0) FROM feed_state.checkpoints") > 2;
  })) << runner_->Errors();
}

TEST_F(OffsetsCtl, ToEmptyTablesIsAskedAboutWhereverTheyAre) {
  RunAndPublish();
  const std::string reset = "offsets reset feed --empty --to-time " + before_ + " --reason test";
  const auto unasked = world_.Ctl(reset);
  EXPECT_EQ(unasked.status, 1);
  EXPECT_THAT(unasked.err,
              AllOf(HasSubstr("This deletes 6 rows of 2 tables"), HasSubstr("Repeat with --yes")));
  EXPECT_EQ(Epoch(), 1);
  EXPECT_EQ(Right(), 3);
  EXPECT_EQ(world_.Ctl(reset + " --yes").status, 0);
  EXPECT_EQ(Epoch(), 2);
  EXPECT_TRUE(AwaitRight(3)) << runner_->Errors();
}

// 0.0.0.0 is this machine, which is not known of an address.
TEST_F(OffsetsCtl, AYesDoesNotAnswerForADatabaseThatIsNotOnThisMachine) {
  RunAndPublish();
  std::string far = world_.database.url();
  far.replace(far.find("127.0.0.1"), 9, "0.0.0.0");
  const std::string reset =
      "--database '" + far + "' offsets reset feed --to-latest --reason test --yes";
  const auto reflex = world_.Ctl(reset);
  EXPECT_EQ(reflex.status, 1);
  EXPECT_THAT(reflex.err, HasSubstr("--yes does not answer for it, --confirm-database " +
                                    world_.database.name() + " does"));
  const auto other = world_.Ctl(reset + " --confirm-database shop");
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err,
              HasSubstr("the database is " + world_.database.name() + ", and 'shop' was named"));
  EXPECT_EQ(Epoch(), 1);
  const auto meant = world_.Ctl(reset + " --confirm-database " + world_.database.name());
  EXPECT_EQ(meant.status, 0) << meant.err;
  EXPECT_EQ(Epoch(), 2);
}

TEST_F(OffsetsCtl, AGroupThatNobodyRunsCanBeRemoved) {
  RunAndPublish();
  const std::string remove = "group remove feed --reason 'moved away' --yes";
  const auto running = world_.Ctl(remove);
  EXPECT_EQ(running.status, 1);
  EXPECT_THAT(running.err, HasSubstr("take it out of their configuration"));
  runner_->Signal(SIGTERM);
  EXPECT_EQ(runner_->Wait(), 0);
  EXPECT_THAT(world_.Ctl("group remove feed --reason test").err,
              AllOf(HasSubstr("Its tables and its subscription stay"), HasSubstr("--yes")));
  const auto done = world_.Ctl(remove);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr(world_.subscription));
  EXPECT_EQ(nlohmann::json::parse(world_.Ctl("lag --json").out).size(), 0u);
  for (const char* table : {"consumer_groups", "slots", "offsets", "inbox", "key_state",
                            "retired_generations", "dead_letters", "instances"}) {
    EXPECT_EQ(world_.Count(fmt::format("SELECT count(*) FROM feed_state.{}", table)), 0) << table;
  }
  EXPECT_EQ(Right(), 3) << "its tables are as they were";
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'group.removed' AND "
                         "reason = 'moved away'"),
            1);
  EXPECT_THAT(world_.Ctl(remove).err, HasSubstr("there is no group 'feed'"));
}

TEST_F(OffsetsCtl, AFirstStartIsAWarningAndTheNextIsNot) {
  RunAndPublish();
  constexpr char kWarning[] = "the group starts for the first time and has no offset";
  EXPECT_THAT(runner_->Errors(), HasSubstr(std::string("level=warning msg=\"") + kWarning));
  runner_->Signal(SIGTERM);
  EXPECT_EQ(runner_->Wait(), 0);
  runner_ = world_.Runner();
  ASSERT_TRUE(world_.AwaitLog(*runner_, "the stream is open"));
  EXPECT_THAT(runner_->Errors(), Not(HasSubstr(kWarning)));
}

TEST_F(OffsetsCtl, ShowsExportsAndMeasures) {
  RunAndPublish();
  EXPECT_THAT(world_.Ctl("offsets show").out, HasSubstr(world_.subscription));
  const auto exported = nlohmann::json::parse(world_.Ctl("offsets export feed").out);
  EXPECT_EQ(exported["group"], "feed");
  EXPECT_FALSE(exported["offsets"].empty());
  const auto& offset = exported["offsets"][0];
  for (const char* key :
       {"instance", "subscription", "message_id", "publish_time", "updated_at", "updated_by"}) {
    EXPECT_TRUE(offset.contains(key) && offset[key].is_string()) << key << " of " << offset;
  }
  for (const char* key : {"lane", "epoch", "lag_ms"}) {
    EXPECT_TRUE(offset.contains(key) && offset[key].is_number_integer()) << key << " of " << offset;
  }
  nlohmann::json lag;
  ASSERT_TRUE(world_.Await([&] {  // the last event may still be within its two looks
    lag = nlohmann::json::parse(world_.Ctl("lag --json").out);
    return lag[0]["state"] == "idle";
  }));
  ASSERT_EQ(lag.size(), 1u);
  EXPECT_EQ(lag[0]["group"], "feed");
  EXPECT_EQ(lag[0]["instances"], 1);
  EXPECT_EQ(lag[0]["parked_keys"], 0);
  EXPECT_EQ(lag[0]["dead_letters"], 0);
}

}  // namespace
}  // namespace lockstep::ctl
