#include <gmock/gmock.h>

#include "publisher/service/outbox_watch.h"
#include "publisher/testing/outbox_test.h"
#include "tests/support/eventually.h"
#include "tests/support/service_stress.h"
#include "tests/support/silent_server.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class OutboxWatchTest : public OutboxTest {
 protected:
  std::unique_ptr<OutboxWatch> Make(Millis every = Millis(60'000),
                                    std::vector<std::string> tables = {kTable}) {
    return std::make_unique<OutboxWatch>(
        OutboxWatch::Parts{.database = server_.url(),
                           .tables = std::move(tables),
                           .every = every,
                           .counts_replays = [this](const std::string&) { return owner_; },
                           .metrics = metrics_,
                           .instance = "p-1"});
  }
  bool Shows(const std::string& sample) const {
    return RenderMetrics(metrics_).find(sample + "\n") != std::string::npos;
  }

  testing::SilentServer server_{db_.url()};
  MetricsRegistry metrics_;
  bool owner_ = true;
};

TEST_F(OutboxWatchTest, CountsPendingLockedDeadAndReplays) {
  EnqueueMany("k", 3);
  EnqueueMany("dead", 1);
  Claimer claimer = NewClaimer("a");
  claimer.request.rows = 1;
  claimer.Take();
  db_.Run(
      "UPDATE shop.outbox_status SET dead_at = now(), available_at = 'infinity' WHERE aggregate_id "
      "= "
      "'dead'");
  const auto watch = Make();
  EXPECT_FALSE(watch->Of(kTable).known);
  watch->Look();
  EXPECT_TRUE(watch->Of(kTable).known);
  EXPECT_EQ(watch->Of(kTable).part["dead_rows"].size(), 1U);
  EXPECT_TRUE(Shows(R"(outbox_pending{table="shop.outbox"} 3)"));
  EXPECT_TRUE(Shows(R"(outbox_locked{table="shop.outbox"} 1)"));
  EXPECT_TRUE(Shows(R"(outbox_dead{table="shop.outbox"} 1)"));
  EXPECT_TRUE(Shows(R"(tx_replay_total{kind="outbox"} 0)"));
}

TEST_F(OutboxWatchTest, CountsWhatRunningBackfillsHaveToSendAndThoseThatFailed) {
  db_.Run(
      "INSERT INTO lockstep.backfills (outbox, name, declaration, created_by, state, rows_expected,"
      " rows_done, last_error) VALUES ('shop.outbox', 'a', '{}', 'ann', 'running', 100, 40, NULL),"
      " ('shop.outbox', 'b', '{}', 'ann', 'running', 5, 7, NULL),"
      " ('shop.outbox', 'c', '{}', 'ann', 'paused', 1000, 0, NULL),"
      " ('shop.outbox', 'd', '{}', 'ann', 'failed', 1000, 0, 'why')");
  const auto watch = Make();
  watch->Look();
  EXPECT_TRUE(Shows(R"(backfill_rows_remaining{table="shop.outbox"} 60)"));
  EXPECT_TRUE(Shows(R"(backfills_failed{table="shop.outbox"} 1)"));
}

TEST_F(OutboxWatchTest, TellsTheDatabaseWhereItsPageIsUntilItEnds) {
  db_.Run(
      "INSERT INTO lockstep.publishers (instance, address, version, outboxes, started_at, seen_at) "
      "VALUES ('old', 'http://h:1', '0', '{}', now() - interval '3 hours', now() - interval '2 "
      "hours'),"
      " ('p-2', 'http://h:2', '0', '{}', now() - interval '3 hours', now())");
  const auto watch = Make();
  watch->SetAddress("http://h:9101");
  watch->Look();
  const nlohmann::json publishers = watch->Publishers();
  ASSERT_EQ(publishers.size(), 2U)
      << publishers << ": one that was not seen for an hour is forgotten";
  EXPECT_EQ(publishers[0]["instance"], "p-1");
  EXPECT_EQ(publishers[0]["address"], "http://h:9101");
  EXPECT_EQ(publishers[0]["outboxes"][0], kTable);
  watch->SetAddress("http://h:9109");
  watch->Look();
  EXPECT_EQ(watch->Publishers()[0]["address"], "http://h:9109");
  watch->Stop();
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.publishers WHERE instance = 'p-1'"), 0);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.publishers WHERE instance = 'p-2'"), 1);
}

TEST_F(OutboxWatchTest, TheOwnerOfTheFirstShardCountsAReplayOnce) {
  EnqueueMany("dead", 1);
  const auto replay = [&] {
    // Whatever the operator's search_path says, the audit names the outbox as we do.
    db_.Run(
        "UPDATE shop.outbox_status SET dead_at = now(), available_at = 'infinity'; SET search_path "
        "= "
        "shop; SELECT lockstep.replay('outbox', array_agg(sequence), 'ann') FROM outbox");
  };
  const auto watch = Make(Millis(5));
  ASSERT_TRUE(watch->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] { return watch->Of(kTable).known; }));
  replay();
  EXPECT_TRUE(testing::Eventually([&] { return Shows(R"(tx_replay_total{kind="outbox"} 1)"); }));
  replay();
  EXPECT_TRUE(testing::Eventually([&] { return Shows(R"(tx_replay_total{kind="outbox"} 2)"); }));
}

TEST_F(OutboxWatchTest, AMissingTableIsToldAndDoesNotHideTheOthers) {
  Enqueue("k", 1);
  const auto watch = Make(Millis(60'000), {"no.such", kTable});
  ::testing::internal::CaptureStderr();
  watch->Look();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("level=warn"));
  ::testing::internal::CaptureStderr();
  watch->Look();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("level=warn")));
  EXPECT_TRUE(Shows(R"(outbox_pending{table="shop.outbox"} 1)"));
  EXPECT_EQ(watch->database().good_since(), WallTime());
}

TEST_F(OutboxWatchTest, ThePendingGrowOldThoughTheDatabaseIsSilent) {
  Enqueue("k", 1);
  const auto watch = Make();
  const auto oldest = [&] {
    const std::string name = "outbox_oldest_pending_seconds{table=\"shop.outbox\"} ";
    const std::string all = RenderMetrics(metrics_);
    return std::stod(all.substr(all.find(name) + name.size()));
  };
  ASSERT_TRUE(watch->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] { return watch->Of(kTable).known; }));
  server_.silent = true;
  const double before = oldest();
  EXPECT_TRUE(testing::Eventually([&] { return oldest() > before + 2; }));
  EXPECT_GE(watch->Of(kTable).oldest, Millis(2'000));
}

// The clock went back, and housekeeping has made the row due: its age counts from there.
TEST_F(OutboxWatchTest, ARowFromTheFutureGrowsOldFromWhenItIsDue) {
  Enqueue("k", 1);
  db_.Run(
      "UPDATE shop.outbox SET created_at = now() + interval '1 hour';"
      "UPDATE shop.outbox_status SET available_at = now() - interval '10 minutes'");
  const auto watch = Make();
  watch->Look();
  EXPECT_GE(watch->Of(kTable).oldest, Millis(600'000));
  EXPECT_LT(watch->Of(kTable).oldest, Millis(1'200'000));
}

TEST_F(OutboxWatchTest, IsAServiceLikeAnyOther) {
  testing::StressService([&] { return Make(); });
}

}  // namespace
}  // namespace lockstep::publisher
