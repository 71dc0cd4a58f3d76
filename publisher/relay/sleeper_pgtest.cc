#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "publisher/relay/sleeper.h"
#include "publisher/testing/relay_test.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"

namespace lockstep::publisher {
namespace {

// The poll can't help: with it every 30 s, what is published at once was announced.
RelayOptions Sleepy() {
  RelayOptions options;
  options.table = "shop.outbox";
  options.poll_floor = options.poll_interval = Millis(30'000);
  return options;
}

class SleeperTest : public RelayTest {
 protected:
  int64_t SleepingSessions() {
    return db_.QueryInt(
        "SELECT count(*) FROM pg_locks l, lockstep.lock_key('wake', 'shop.outbox', 0) AS k "
        "WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = "
        "'ExclusiveLock' AND l.database = (SELECT oid FROM pg_database WHERE datname = "
        "current_database()) AND l.classid::bigint = (k >> 32 & 4294967295) AND l.objid::bigint = "
        "(k & 4294967295)");
  }
  void AwaitAsleep() {
    ASSERT_TRUE(testing::Eventually([&] { return SleepingSessions() > 0; }));
  }
};

TEST_F(SleeperTest, AWriterWakesASleeper) {
  const auto owner = StartOwner(Sleepy(), nullptr, [] { return 0.999; });
  for (int version = 1; version <= 5; ++version) {
    AwaitAsleep();
    Enqueue("k", version);
    ASSERT_TRUE(AwaitPublished(version)) << version;
  }
}

TEST_F(SleeperTest, AWriterThatCommitsJustAsThePublisherFallsAsleepIsNotOverslept) {
  const auto owner = StartOwner(Sleepy(), nullptr, [] { return 0.999; });
  const auto writer = db_.Connect();
  std::mt19937 engine(7);
  for (int version = 1; version <= 100; ++version) {
    auto transaction = writer->Begin();
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(transaction
                    ->Execute("SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k', "
                              "'T', $1, 'p')",
                              version)
                    .ok());
    // Somewhere between its last work and its sleep.
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds(engine() % 4000);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    ASSERT_TRUE(transaction->Commit().ok());
    ASSERT_TRUE(AwaitPublished(version)) << version;
  }
}

TEST_F(SleeperTest, AnOpenWriterKeepsThePublisherFromSleeping) {
  const auto writer = db_.Connect();
  auto transaction = writer->Begin();
  ASSERT_TRUE(transaction
                  ->Execute("SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', "
                            "'slow', 'T', 1, 'p')")
                  .ok());
  RelayOptions options = Options();
  const auto owner = StartOwner(options);
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitPublished(1));
  EXPECT_EQ(SleepingSessions(), 0);
  ASSERT_TRUE(transaction->Commit().ok());
  ASSERT_TRUE(AwaitPublished(2));
  AwaitAsleep();
}

TEST_F(SleeperTest, NothingIsNotifiedWhileThePublisherIsAwake) {
  const auto listener = db_.Connect();
  const auto channel = db_.Query("SELECT lockstep.wake_channel('shop.outbox')");
  ASSERT_TRUE(listener->Listen(channel.Text(0, 0)).ok());
  Enqueue("k", 1);  // nobody sleeps: there is no publisher at all
  ASSERT_TRUE(listener->Execute("SELECT 1").ok());
  EXPECT_TRUE(listener->TakeNotifications()->empty());
  const auto owner = StartOwner(Sleepy(), nullptr, [] { return 0.999; });
  AwaitAsleep();
  Enqueue("k", 2);
  ASSERT_TRUE(AwaitPublished(2));
  ASSERT_TRUE(listener->Execute("SELECT 1").ok());
  EXPECT_EQ(listener->TakeNotifications()->size(), 1u);
}

TEST_F(SleeperTest, ARelayThatKeepsUpHoldsTheLocksWhileItWaitsForAnswers) {
  bus_.HoldPublishes(true);
  const auto owner = StartOwner(Sleepy(), nullptr, [] { return 0.999; });
  // Longer than it waits for answers before it would fall asleep anew. Again if it was not at rest
  // when the row came, for then it may give them back.
  bool held = false;
  int rows = 0;
  while (!held && rows < 10) {
    AwaitAsleep();
    std::this_thread::sleep_for(Millis(50));
    Enqueue(fmt::format("k{}", ++rows), 1);
    ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == rows; })) << rows;
    held = true;
    const auto end = std::chrono::steady_clock::now() + Millis(100);
    while (std::chrono::steady_clock::now() < end) held = held && SleepingSessions() == 1;
  }
  EXPECT_TRUE(held);
  bus_.HoldPublishes(false);
  ASSERT_TRUE(AwaitPublished(rows));
}

TEST_F(SleeperTest, ARelayThatFallsBehindLetsTheWritersOff) {
  bus_.HoldPublishes(true);
  RelayOptions options = Sleepy();
  options.batch_size = options.max_in_flight = 1;  // every claim is full, and then it has no room
  const auto owner = StartOwner(options, nullptr, [] { return 0.999; });
  const auto listener = db_.Connect();
  const auto channel = db_.Query("SELECT lockstep.wake_channel('shop.outbox')");
  ASSERT_TRUE(listener->Listen(channel.Text(0, 0)).ok());
  AwaitAsleep();
  Enqueue("k", 1);
  ASSERT_TRUE(testing::Eventually([&] { return SleepingSessions() == 0; }));
  Enqueue("k", 2);
  ASSERT_TRUE(listener->Execute("SELECT 1").ok());
  EXPECT_EQ(listener->TakeNotifications()->size(), 1u) << "of the first one";
  bus_.HoldPublishes(false);
  ASSERT_TRUE(AwaitPublished(2));
  AwaitAsleep();
}

TEST_F(SleeperTest, WhatAFailureSetsFreeIsLookedForAtOnce) {
  RelayOptions options = Sleepy();
  options.on_dead = OnDead::kSkip;
  const auto owner = StartOwner(options, nullptr, [] { return 0.999; });
  AwaitAsleep();
  db_.Run(
      "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k', 'T', v, 'p') "
      "FROM generate_series(1, 2) AS v;" +
      std::string(kSpoilFirstVersions));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.published == 1; }));
  EXPECT_EQ(owner->events.dead.size(), 1u);
}

// Answers when told, request by request.
class ByHand : public Dispatcher {
 public:
  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    std::scoped_lock lock(mu_);
    requests_.push_back({rows.size(), std::move(done)});
    changed_.notify_all();
  }
  // False if there is no such request after 20 s.
  bool Answer(size_t request, const absl::Status& status) {
    std::unique_lock lock(mu_);
    const auto there = [&] { return requests_.size() > request; };
    if (!changed_.wait_for(lock, std::chrono::seconds(20), there)) return false;
    const auto [rows, done] = requests_[request];
    lock.unlock();
    done(std::vector<DispatchResult>(rows, {status, "", ""}));
    return true;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::pair<size_t, Done>> requests_;
};

TEST_F(SleeperTest, RowsOfAPausedTopicAreLookedForWhenAnAnswerEndsThePause) {
  RelayOptions options = Sleepy();
  options.retry.base = options.retry.cap = Millis(60'000);  // nor can the end of the pause help
  auto dispatcher = std::make_unique<ByHand>();
  ByHand& bus = *dispatcher;
  const auto owner = StartOwner(options, std::move(dispatcher), [] { return 0.999; });
  AwaitAsleep();
  Enqueue("slow", 1);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  Enqueue("away", 1);
  ASSERT_TRUE(bus.Answer(1, absl::UnavailableError("away")));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.outages.size() == 1; }));
  Enqueue("late", 1);
  std::this_thread::sleep_for(Millis(200));  // it has looked, past the topic that is paused
  ASSERT_TRUE(bus.Answer(0, absl::OkStatus()));
  EXPECT_TRUE(bus.Answer(2, absl::OkStatus())) << "it sleeps on";
  owner->relay->Stop();
}

TEST_F(SleeperTest, RowsOfATopicWhosePauseEndsDuringALookAreLookedFor) {
  testing::FakeClock clock;
  clock_ = &clock;
  RelayOptions options = Sleepy();
  options.retry.base = options.retry.cap = Millis(60'000);
  auto dispatcher = std::make_unique<ByHand>();
  ByHand& bus = *dispatcher;
  const auto owner = StartOwner(options, std::move(dispatcher), [] { return 0.999; });
  Enqueue("k", 1);
  ASSERT_TRUE(bus.Answer(0, absl::UnavailableError("away")));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.outages.size() == 1; }));
  AwaitAsleep();
  const auto holder = db_.Connect();
  auto transaction = holder->Begin();
  ASSERT_TRUE(transaction->Execute("LOCK TABLE shop.outbox IN ACCESS EXCLUSIVE MODE").ok());
  db_.Run("SELECT pg_notify(lockstep.wake_channel('shop.outbox'), '')");
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
               "AND application_name = 'lockstep-publisher' AND wait_event_type = "
               "'Lock'") == 1;
  }));
  clock.Advance(Millis(61'000));
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_TRUE(bus.Answer(1, absl::OkStatus())) << "it sleeps on";
  owner->relay->Stop();
}

TEST_F(SleeperTest, ARelayWithFullHandsMarksWhatIsAnsweredAndKeepsTurning) {
  testing::FakeClock clock;  // it stands still: what gathers never has for long enough
  clock_ = &clock;
  RelayOptions options = Sleepy();
  options.batch_size = options.max_in_flight = 2;
  options.lock_ttl = std::chrono::hours(1);  // nor do leases make it turn
  for (const char* topic : {"one", "two"}) {
    db_.Run(fmt::format("SELECT lockstep.enqueue('shop.outbox', '{0}', 'item', '{0}', 'T', 1, 'p')",
                        topic));
  }
  auto dispatcher = std::make_unique<ByHand>();
  ByHand& bus = *dispatcher;
  const auto owner = StartOwner(options, std::move(dispatcher), [] { return 0.999; });
  ASSERT_TRUE(bus.Answer(0, absl::OkStatus()));
  EXPECT_TRUE(testing::Eventually([&] { return Count("published_at IS NOT NULL") == 1; }));
  const SteadyTime turn = owner->relay->last_turn();
  clock.Advance(Millis(1));
  EXPECT_TRUE(testing::Eventually([&] { return owner->relay->last_turn() > turn; }));
  ASSERT_TRUE(bus.Answer(1, absl::OkStatus()));
  owner->relay->Stop();
}

TEST_F(SleeperTest, ANewPollIntervalIsFollowedAtOnce) {
  RelayOptions options = Sleepy();
  const auto owner = StartOwner(options, nullptr, [] { return 0.999; });
  AwaitAsleep();
  options.poll_interval = Millis(10);
  owner->relay->Reconfigure(options);
  std::this_thread::sleep_for(Millis(200));  // the look that it takes at once is over
  // As nobody should, without the trigger that tells of it: only a poll can find it.
  db_.Run(
      "BEGIN; SET LOCAL session_replication_role = replica; "
      "INSERT INTO shop.outbox (topic, aggregate_type, aggregate_id, event_type, version, payload) "
      "VALUES ('shop.events', 'item', 'k', 'T', 1, 'p'); "
      "INSERT INTO shop.outbox_pending (sequence, aggregate_hash, version) SELECT sequence, "
      "lockstep.aggregate_hash(aggregate_id, aggregate_type, tenant_id), version FROM shop.outbox; "
      "COMMIT");
  EXPECT_TRUE(AwaitPublished(1));
}

TEST_F(SleeperTest, ARetryIsNotOverslept) {
  std::atomic<int> failures = 3;
  bus_.OnPublish([&](const std::string&, const pubsub::Message&) {
    return --failures >= 0 ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Sleepy();
  options.poll_floor = Millis(1);  // the first rest is over at once, the later ones are long
  options.retry.base = options.retry.cap = Millis(300);
  Enqueue("k", 1);
  const auto owner = StartOwner(options, nullptr, [] { return 0.999; });
  ASSERT_TRUE(AwaitPublished(1));
}

}  // namespace
}  // namespace lockstep::publisher
