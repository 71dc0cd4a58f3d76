// The connection is lost around COMMIT: before it, during it, and when it has happened and the
// answer is lost. No ack before the inbox has settled which of them it was.
#include <gtest/gtest.h>

#include "runner/testing/cutting_proxy.h"
#include "runner/testing/wire_world.h"

namespace lockstep::runner {
namespace {

using Cut = CuttingProxy::Cut;

class CommitLost : public ::testing::TestWithParam<Cut> {};

TEST_P(CommitLost, IsSettledByTheInbox) {
  WireWorld world;
  CuttingProxy proxy(world.database.url());
  world.url = proxy.url();
  world.options.lanes = 1;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  proxy.CutNext(GetParam(), 2);
  world.Publish(Events(3, 4));
  ASSERT_TRUE(world.Await([&] { return group->status().counts.acks >= 12; }));
  EXPECT_EQ(proxy.cuts(), 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 12);
  EXPECT_EQ(world.Count("SELECT min(n) FROM rm.counters"), 4);
  EXPECT_EQ(world.Count("SELECT max(n) FROM rm.counters"), 4);
  EXPECT_EQ(world.Disorder(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
  const GroupCounts counts = group->status().counts;
  EXPECT_EQ(counts.failures, 2);
  EXPECT_EQ(counts.acks, 12);
  // What had committed is known to the inbox when it is run again; what had not is applied then.
  if (GetParam() == Cut::kAfterCommit) {
    EXPECT_GT(counts.duplicates, 0);
  } else if (GetParam() == Cut::kBeforeCommit) {
    EXPECT_EQ(counts.duplicates, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Around, CommitLost,
                         ::testing::Values(Cut::kBeforeCommit, Cut::kDuringCommit,
                                           Cut::kAfterCommit),
                         [](const auto& test) {
                           switch (test.param) {
                             case Cut::kBeforeCommit:
                               return "Before";
                             case Cut::kDuringCommit:
                               return "During";
                             case Cut::kAfterCommit:
                               break;
                           }
                           return "After";
                         });

// No transaction commits for a while, the probe's neither: that says nothing about the event.
TEST(CommitRefused, BlamesNoEventForAnOutage) {
  WireWorld world;
  CuttingProxy proxy(world.database.url());
  world.url = proxy.url();
  world.options.lanes = 1;
  world.options.transient_tries = 2;
  world.options.max_attempts = 6;
  world.database.Run("CREATE TABLE rm.moody (); CREATE SEQUENCE rm.tries");
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  proxy.CutNext(Cut::kBeforeCommit, 1'000);
  world.Publish({{.payload = Running("DO $$ BEGIN IF EXISTS (SELECT 1 FROM rm.moody) AND "
                                     "nextval('rm.tries') < 3 THEN RAISE EXCEPTION 'no' USING "
                                     "ERRCODE = '40001'; END IF; END $$")}});
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures >= 6; }));
  world.database.Run("INSERT INTO rm.moody DEFAULT VALUES");
  proxy.CutNext(Cut::kBeforeCommit, 0);
  ASSERT_TRUE(world.Await([&] { return group->status().counts.acks == 1; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
}

}  // namespace
}  // namespace lockstep::runner
