#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "publisher/relay.h"
#include "publisher/testing/relay_test.h"

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Version(const pubsub::Message& message) { return message.attributes.at("version"); }

TEST_F(RelayTest, PublishesWhatIsThereAndWhatComes) {
  EnqueueMany("k", 3);
  const auto owner = StartOwner();
  ASSERT_TRUE(AwaitPublished(3));
  Enqueue("k", 4);
  ASSERT_TRUE(AwaitPublished(4));
  owner->relay->Stop();
  EXPECT_EQ(Published(), "k:1 k:2 k:3 k:4");
  EXPECT_EQ(Count("published_at IS NOT NULL AND lock_token IS NULL AND attempts = 0"), 4);
  EXPECT_EQ(bus_.published()[3].message_id.value(), Text("message_id", 4));
}

TEST_F(RelayTest, RelaysNothingWithoutAShard) {
  Enqueue("k", 1);
  const auto idle = StartRelay(Options());
  const auto owner = StartOwner();
  ASSERT_TRUE(AwaitPublished(1));
  idle->relay->Stop();
  EXPECT_EQ(idle->events.claimed, 0);
}

TEST_F(RelayTest, KeepsOrderOverManySmallClaims) {
  RelayOptions options = Options();
  options.batch_size = 1;
  options.max_in_flight = 64;
  for (int version = 1; version <= 40; ++version) {
    for (const char* key : {"a", "b", "c"}) Enqueue(key, version);
  }
  const auto owner = StartOwner(options);
  ASSERT_TRUE(AwaitPublished(120));
  std::map<std::string, int> last;
  for (const auto& published : bus_.published()) {
    EXPECT_EQ(std::stoi(Version(published.message)), ++last[published.message.ordering_key]);
  }
}

TEST_F(RelayTest, APoisonRowHoldsItsOwnKeyOnly) {
  std::atomic<bool> mended = false;
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    const bool bad = message.ordering_key == "bad" && Version(message) == "2" && !mended;
    return bad ? absl::InternalError("no") : absl::OkStatus();
  });
  EnqueueMany("bad", 4);
  EnqueueMany("good", 20);
  const auto owner = StartOwner();
  ASSERT_TRUE(AwaitPublished(21));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() >= 3; }));
  EXPECT_THAT(Published(), Not(HasSubstr("bad:2")));
  EXPECT_THAT(Published(), Not(HasSubstr("bad:3")));
  EnqueueMany("late", 5);
  ASSERT_TRUE(AwaitPublished(26));
  mended = true;
  ASSERT_TRUE(AwaitPublished(29));
  EXPECT_THAT(Published(), HasSubstr("bad:2 bad:3 bad:4"));
  owner->relay->Stop();
  EXPECT_EQ(Count("published_at IS NOT NULL"), 29);
}

TEST_F(RelayTest, APoisonRowThatWaitsLongDelaysNobody) {
  bus_.OnPublish([](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "bad" ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(60'000);
  Enqueue("bad", 1);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() == 1; }));
  EnqueueMany("good", 3);
  ASSERT_TRUE(AwaitPublished(3));
  EXPECT_EQ(Published(), "good:1 good:2 good:3");
  EXPECT_TRUE(owner->events.outages.empty());
}

TEST_F(RelayTest, RetriesFollowTheCurveAndEndInDeath) {
  bus_.OnPublish(
      [](const std::string&, const pubsub::Message&) { return absl::InternalError("no"); });
  RelayOptions options = Options();
  options.retry = RetryPolicy();  // 25 attempts, 1 s doubling to 60 s, 0-200 ms added
  Enqueue("k", 1);
  const auto owner = StartOwner(options, nullptr, [] { return 0.5; });
  for (size_t failures = 1; failures < 25; ++failures) {
    ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() >= failures; }));
    // The settlement follows the event; only then can the row be made due.
    const int64_t wait = std::min<int64_t>(1000LL << (failures - 1), 60'000) + 100;
    while (Count(fmt::format("attempts = {} AND lock_token IS NULL", failures)) == 0) {
      std::this_thread::yield();
    }
    EXPECT_EQ(Count(fmt::format("available_at BETWEEN now() + interval '{} ms' - interval '900 ms' "
                                "AND now() + interval '{} ms'",
                                wait, wait)),
              1)
        << failures;
    EXPECT_EQ(owner->events.retries.back().delay.count(), wait);
    MakeDue();
  }
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_EQ(Count("attempts = 25 AND dead_at IS NOT NULL AND error_code = 'UNKNOWN.INTERNAL'"), 1);
}

TEST_F(RelayTest, NewSettingsAreFollowedFromTheNextRoundOn) {
  bus_.OnPublish([](const std::string&, const pubsub::Message& message) {
    return message.ordering_key.starts_with("bad") ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(60'000);
  Enqueue("bad", 1);
  const auto owner = StartOwner(options);
  Recorder& events = owner->events;
  ASSERT_TRUE(events.Await([&] { return events.retries.size() == 1; }));
  EXPECT_EQ(events.retries[0].delay, Millis(60'000));

  options.batch_size = 2;
  options.retry.base = options.retry.cap = Millis(50'000);
  owner->relay->Reconfigure(options);
  Enqueue("last of the old round", 1);
  ASSERT_TRUE(AwaitPublished(1));
  ASSERT_TRUE(events.Await([&] {
    events.largest_claim = 0;
    return true;
  }));
  Enqueue("bad too", 1);
  ASSERT_TRUE(events.Await([&] { return events.retries.size() == 2; }));
  EXPECT_EQ(events.retries[1].delay, Millis(50'000));
  EnqueueMany("good", 7);
  ASSERT_TRUE(AwaitPublished(8));
  owner->relay->Stop();
  EXPECT_EQ(events.largest_claim, 2);
}

TEST_F(RelayTest, ANewLimitOfAttemptsCountsForRowsThatWait) {
  bus_.OnPublish(
      [](const std::string&, const pubsub::Message&) { return absl::InternalError("no"); });
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(600'000);
  Enqueue("k", 1);
  const auto owner = StartOwner(options);
  while (Count("attempts = 1 AND lock_token IS NULL") == 0) std::this_thread::yield();
  options.retry.max_attempts = 2;
  owner->relay->Reconfigure(options);
  MakeDue();
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
}

TEST_F(RelayTest, ANewLimitOfRowsInHandIsFollowed) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.batch_size = 1;
  options.max_in_flight = 2;
  options.lock_ttl = Millis(600'000);  // nothing else wakes a relay that has its hands full
  EnqueueMany("k", 9);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed >= 2; }));
  options.max_in_flight = 5;
  owner->relay->Reconfigure(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed >= 5; }));
  EXPECT_EQ(Count("lock_token IS NOT NULL"), 5);
  bus_.HoldPublishes(false);
  EXPECT_TRUE(AwaitPublished(9));
}

TEST_F(RelayTest, NewRetrySettingsCountForTopicsOutOfReach) {
  bus_.OnPublish(
      [](const std::string&, const pubsub::Message&) { return absl::UnavailableError("no"); });
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(20);
  Enqueue("k", 1);
  const auto owner = StartOwner(options);
  Recorder& events = owner->events;
  ASSERT_TRUE(events.Await([&] { return !events.pauses.empty(); }));
  options.retry.base = options.retry.cap = Millis(30);
  owner->relay->Reconfigure(options);
  EXPECT_TRUE(events.Await([&] { return events.pauses.back() == Millis(30); }));
}

TEST_F(RelayTest, ADeadRowHoldsItsAggregateUntilItIsReplayed) {
  std::atomic<bool> mended = false;
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    if (Version(message) == "1" && !mended) return absl::InvalidArgumentError("refused for good");
    return absl::OkStatus();
  });
  EnqueueMany("k", 3);
  Enqueue("other", 2);
  const auto owner = StartOwner();
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  EXPECT_THAT(owner->events.dead, ElementsAre("k:1 SCHEMA.VALIDATION_FAILED"));
  Enqueue("k", 4);
  Enqueue("other", 3);
  ASSERT_TRUE(AwaitPublished(2));
  EXPECT_EQ(Published(), "other:2 other:3");
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1"), 1);
  mended = true;
  db_.Run("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')");
  ASSERT_TRUE(AwaitPublished(6));
  EXPECT_EQ(Published(), "other:2 other:3 k:1 k:2 k:3 k:4");
}

TEST_F(RelayTest, SkipLetsTheAggregateGoOn) {
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return Version(message) == "1" ? absl::InvalidArgumentError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.on_dead = OnDead::kSkip;
  EnqueueMany("k", 3);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(AwaitPublished(2));
  EXPECT_EQ(Published(), "k:2 k:3");
}

TEST_F(RelayTest, AMisspeltTopicWaitsBesideGoodOnes) {
  for (int i = 0; i < 5; ++i) {
    Enqueue({.key = fmt::format("m{}", i), .topic = "shop.evnets"});
    Enqueue(fmt::format("g{}", i), 1);
  }
  const auto owner = StartOwner();
  ASSERT_TRUE(AwaitPublished(5));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.outages.size() >= 2; }));
  EXPECT_EQ(Count("topic = 'shop.evnets' AND attempts > 0"), 0);
  EXPECT_EQ(owner->events.outages[0], "shop.evnets PROVIDER.UNAVAILABLE");
  EXPECT_GT(Count("topic = 'shop.evnets' AND error_code = 'PROVIDER.UNAVAILABLE'"), 0);
  pubsub::Topic topic;
  topic.name = "projects/p/topics/shop.evnets";
  ASSERT_TRUE(bus_.admin().CreateTopic(topic).ok());
  ASSERT_TRUE(AwaitPublished(10));
}

TEST_F(RelayTest, AnOutageSpendsNoAttemptAndKeepsOrder) {
  std::atomic<int> refusals = 12;
  bus_.OnPublish([&](const std::string&, const pubsub::Message&) {
    return --refusals >= 0 ? absl::UnavailableError("away") : absl::OkStatus();
  });
  EnqueueMany("a", 10);
  EnqueueMany("b", 10);
  const auto owner = StartOwner();
  ASSERT_TRUE(AwaitPublished(20));
  owner->relay->Stop();
  EXPECT_EQ(Count("attempts = 0 AND published_at IS NOT NULL AND last_error IS NULL"), 20);
  std::map<std::string, int> last;
  for (const auto& published : bus_.published()) {
    EXPECT_EQ(std::stoi(Version(published.message)), ++last[published.message.ordering_key]);
  }
}

// Refuses a request as a whole when any of its rows is bad, as Pub/Sub does.
class Strict : public Dispatcher {
 public:
  explicit Strict(std::string bad) : bad_(std::move(bad)) {}

  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    std::vector<DispatchResult> results(rows.size());
    const bool refused = std::any_of(rows.begin(), rows.end(),
                                     [&](const RowPtr& row) { return row->payload == bad_; });
    for (size_t i = 0; i < rows.size(); ++i) {
      if (refused) results[i].status = absl::InvalidArgumentError("one of them is bad");
      if (!refused) delivered.insert(rows[i]->sequence);
    }
    ++requests;
    largest = std::max<size_t>(largest, rows.size());
    done(std::move(results));
  }

  std::multiset<int64_t> delivered;  // read when the relay has stopped
  int requests = 0;
  size_t largest = 0;

 private:
  const std::string bad_;
};

TEST_F(RelayTest, OneBadRowAmongAThousandIsFoundByHalving) {
  db_.Run(
      "SELECT count(lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k' || (i % 500), 'T', "
      "1 + i / 500, CASE WHEN i = 333 THEN 'bad' ELSE 'good' END::bytea)) "
      "FROM generate_series(0, 999) i");
  RelayOptions options = Options();
  options.batch_size = 1000;
  auto strict = std::make_unique<Strict>("bad");
  Strict& dispatcher = *strict;
  const auto owner = StartOwner(options, std::move(strict));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.published == 998; }));
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, ElementsAre("k333:1 SCHEMA.VALIDATION_FAILED"));
  EXPECT_EQ(dispatcher.largest, 1000u);
  EXPECT_EQ(dispatcher.delivered.size(), 998u);  // all but it and its successor, each once
  EXPECT_LT(dispatcher.requests, 60);
  EXPECT_EQ(Count("published_at IS NOT NULL AND attempts = 0"), 998);
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1"), 1);
}

TEST_F(RelayTest, LastErrorIsShortAndHoldsNoPayload) {
  const std::string payload = "the secret of the payload is in here";
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return absl::InternalError("can't take '" + message.data + "' " + std::string(5000, 'x') + "é");
  });
  Enqueue({.payload = payload});
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(60'000);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.retries.empty(); }));
  owner->relay->Stop();
  const std::string error = Text("last_error", 1);
  EXPECT_LE(error.size(), 2048u);
  EXPECT_GT(error.size(), 1500u);
  EXPECT_THAT(error, HasSubstr("INTERNAL: can't take"));
  EXPECT_THAT(error, Not(HasSubstr("secret")));
}

TEST_F(RelayTest, StopSettlesWhatIsUnderWayAndGivesTheRestBack) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.batch_size = 2;
  EnqueueMany("k", 6);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 6; }));
  std::thread stopper([&] { owner->relay->Stop(); });
  while (Count("lock_token IS NULL OR published_at IS NOT NULL") == 0) bus_.HoldPublishes(false);
  stopper.join();
  EXPECT_EQ(Count("lock_token IS NOT NULL"), 0);
  EXPECT_EQ(Count("published_at IS NOT NULL"), static_cast<int64_t>(bus_.published().size()));
  EXPECT_EQ(Count("attempts > 0"), 0);
}

TEST_F(RelayTest, ALongPublishKeepsItsLease) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.lock_ttl = Millis(1000);
  Enqueue("k", 1);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  // Renewed at least twice: the lease would have ended long ago.
  std::set<std::string> renewals;
  Claimer other = NewClaimer("other");
  other.request.lock_ttl = options.lock_ttl;
  while (renewals.size() < 4) {
    renewals.insert(Text("locked_at", 1));
    EXPECT_EQ(Names(other.Take()), "");
  }
  bus_.HoldPublishes(false);
  ASSERT_TRUE(AwaitPublished(1));
  owner->relay->Stop();
  EXPECT_EQ(owner->events.lost, 0);
  EXPECT_EQ(Count("published_at IS NOT NULL"), 1);
}

TEST_F(RelayTest, ALostLeaseIsCountedAuditedAndDropped) {
  bus_.HoldPublishes(true);
  Enqueue("k", 1);
  const auto owner = StartOwner();
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  db_.Run("UPDATE shop.outbox SET locked_at = now() - interval '1 hour'");
  Claimer other = NewClaimer("other");
  ASSERT_EQ(Names(other.Take()), "k:1");
  bus_.HoldPublishes(false);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.lost == 1; }));
  owner->relay->Stop();
  EXPECT_EQ(Count("published_at IS NULL AND locked_by = 'other'"), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action = "
                         "'outbox_flush_conflict' AND actor = 'a' AND detail->>'locked_by' = "
                         "'other'"),
            1);
}

TEST_F(RelayTest, ComesBackAfterItsSessionIsEnded) {
  const auto owner = StartOwner();
  for (int round = 1; round <= 3; ++round) {
    Enqueue("k", round);
    ASSERT_TRUE(AwaitPublished(round));
    db_.Run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND application_name = 'lockstep-publisher'");
  }
  Enqueue("k", 4);
  ASSERT_TRUE(AwaitPublished(4));
  owner->relay->Stop();
  // What was published and not marked when the session ended may come twice, in order.
  std::set<std::string> versions;
  for (const auto& published : bus_.published()) versions.insert(Version(published.message));
  EXPECT_EQ(versions.size(), 4u);
  EXPECT_TRUE(owner->events.database_errors > 0);
}

TEST_F(RelayTest, RowsOfAShardThatLeavesAreGivenBack) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.batch_size = 1;
  EnqueueMany("k", 4);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 4; }));
  const int64_t change = owner->relay->SetShards({}, 1);
  while (Count("lock_token IS NULL") < 3) std::this_thread::yield();
  EXPECT_FALSE(owner->relay->LeftBehind(change));  // one is under way
  bus_.HoldPublishes(false);
  while (!owner->relay->LeftBehind(change)) std::this_thread::yield();
  EXPECT_EQ(Published(), "k:1");
  EXPECT_EQ(Count("published_at IS NOT NULL"), 1);
}

}  // namespace
}  // namespace lockstep::publisher
