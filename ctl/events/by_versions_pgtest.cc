// A group with inbox: aggregate, as its operators see it: every command that asks what became of an
// event, without a row per event.
#include <gmock/gmock.h>
#include <unistd.h>

#include "ctl/testing/source_world.h"

namespace lockstep::ctl {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Item a: versions 1 and 2 applied, 3 dead, 4 parked behind it; and b.
class ByVersionsCtl : public SourceWorld {
 protected:
  void SetUp() override {
    GoByVersions();
    SourceWorld::SetUp();
    first_ = Publish("a", 1);
    AwaitVersions(1);
    second_ = Publish("a", 2);
    dead_ = Publish("a", 3, "not JSON");
    parked_ = Publish("a", 4);
    other_ = Publish("b", 1);
    AwaitVersions(5);
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count(
                 "SELECT count(*) FROM feed_state.group_offsets WHERE publish_time = (SELECT "
                 "max(publish_time) FROM feed_state.offsets)") == 1;
    }));
  }
  json Reconcile(int status = 0) {
    return Json("reconcile --group feed --grace 0s" + Source(), status);
  }
  std::string File() const { return world_.folder + "/ledger"; }
  std::string Verdict(const std::string& what) {
    return Json("trace " + what)["groups"][0]["verdict"];
  }

  std::string first_, second_, dead_, parked_, other_;
};

TEST_F(ByVersionsCtl, ReconcileGoesByVersions) {
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.inbox"), 0);
  Enqueue("d", 1, "clock_timestamp() + interval '1 hour'");
  Json("reconcile export '" + File() + "'" + Source());
  for (const json& result :
       {Reconcile(), Json("reconcile compare '" + File() + "' --group feed --grace 0s")}) {
    const json& counts = result["counts"];
    EXPECT_EQ(counts["settled"], 3) << result;
    EXPECT_EQ(counts["dead"], 1) << result;
    EXPECT_EQ(counts["parked"], 1) << result;
    EXPECT_EQ(counts["on_its_way"], 1) << result;
    EXPECT_EQ(counts["missing"], 0) << result;
    EXPECT_EQ(counts["entries"], 2) << "the last of a and of b: " << result;
    EXPECT_EQ(counts["orphans"], 0) << result;
  }
  // An event that the group never had, and one that it has from elsewhere.
  const std::string lost = Enqueue("c", 1, "clock_timestamp() - interval '1 minute'");
  world_.database.Run("UPDATE feed_state.slots SET first_publish_time = now() - interval '1 day'");
  world_.database.Run("UPDATE feed_state.offsets SET publish_time = now()");
  world_.database.Run("DELETE FROM shop.outbox WHERE event_id = '" + other_ + "'");
  const json result = Json("reconcile --group feed --grace 0s --wait 1s" + Source(), 1);
  EXPECT_EQ(result["counts"]["missing"], 1) << result;
  EXPECT_EQ(result["missing"][0]["event_id"], lost) << result;
  EXPECT_EQ(result["counts"]["orphans"], 1) << result;
  EXPECT_EQ(result["orphans"][0]["event_id"], other_) << result;
}

TEST_F(ByVersionsCtl, TraceTellsByTheVersion) {
  EXPECT_EQ(Verdict(second_ + Source()), "settled: version 2 and all before it have ended");
  EXPECT_EQ(Verdict(first_ + Source()), "settled: version 2 and all before it have ended");
  EXPECT_THAT(Verdict(dead_), HasSubstr("dead letter 1 (dead)"));
  EXPECT_EQ(Verdict(parked_), "parked: version 3 is a dead letter");
  EXPECT_THAT(Verdict("--aggregate-type item --aggregate-id a --version 1"),
              HasSubstr("settled: version 2"));
  EXPECT_THAT(Verdict(first_), HasSubstr("events are kept by their versions; name its")) << "alone";
  const json last = Json("trace " + other_ + Source())["groups"][0];
  EXPECT_TRUE(last["received_at"].is_string()) << last;
  // The source was restored and tells another story.
  world_.database.Run("UPDATE shop.outbox SET event_id = '" + Uuid(999) + "' WHERE event_id = '" +
                      other_ + "'");
  EXPECT_EQ(Verdict(Uuid(999) + Source()), "not received: version 1 came from another event, " +
                                               other_ + ": a forked or restored source");
}

TEST_F(ByVersionsCtl, DeadLettersAndGapsAreEndedAsEver) {
  EXPECT_EQ(world_.Ctl("--yes dead-letters discard --key item/a --reason gone").status, 0);
  EXPECT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM rm.items WHERE id = 'a' AND version = 4") == 1;
  }));
  Publish("a", 7);
  ASSERT_TRUE(world_.Await([&] { return world_.Count("SELECT count(*) FROM feed_state.parked"); }));
  EXPECT_EQ(world_.Ctl("parked skip item/a --to 7 --reason test --yes").status, 0)
      << world_.Ctl("parked list").out;
  EXPECT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM rm.items WHERE id = 'a' AND version = 7") == 1;
  }));
}

TEST_F(ByVersionsCtl, ARunnerThatFollowsNotEveryVersionIsRefusedWithTheCure) {
  runner_.reset();
  world_.group_settings = "    on_gap: apply\n";
  runner_ = world_.Runner();
  EXPECT_TRUE(world_.AwaitLog(*runner_, "set on_gap: park, or set inbox: event"));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.key_state WHERE settled_version > 0"), 2)
      << "what was settled is not forgotten by the way";
  world_.group_settings = "    inbox: aggregate\n";
  const auto refused = world_.Runner();
  EXPECT_NE(refused->Wait(), 0) << "before it does anything";
  EXPECT_THAT(refused->Errors(), HasSubstr("set on_gap: park"));
}

TEST_F(ByVersionsCtl, TheKeyCountsFromTheNextGenerationOn) {
  runner_.reset();
  world_.group_settings = "    on_gap: park\n";
  runner_ = world_.Runner();
  EXPECT_TRUE(
      world_.AwaitLog(*runner_, "goes on with the inbox that its read model was begun with"));
  Publish("b", 2);
  ASSERT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM rm.items WHERE id = 'b' AND version = 2");
  }));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.inbox"), 0);
  const auto reset = world_.Ctl("offsets reset feed --to-earliest --empty --reason test --yes");
  ASSERT_EQ(reset.status, 0) << reset.err;
  ASSERT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM rm.items WHERE id = 'b' AND version = 2") == 1 &&
           world_.Count("SELECT count(*) FROM feed_state.inbox") == 6;
  })) << runner_->Errors();
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.slots WHERE inbox = 'followed'"), 1);
}

}  // namespace
}  // namespace lockstep::ctl
