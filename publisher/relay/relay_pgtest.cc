#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "publisher/relay/relay.h"
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
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.failed >= 3; }));
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
  bus_.OnPublish([](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "k" ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry = RetryPolicy();  // 25 attempts, 1 s doubling to 60 s, 0-200 ms added
  Enqueue("k", 1);
  const auto owner = StartOwner(options, nullptr, [] { return 0.5; });
  size_t others = 0;
  const auto pass_another = [&] {  // so that the row is at fault when it next fails
    Enqueue("other", static_cast<int64_t>(++others));
    return AwaitPublished(others);
  };
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() == 1; }));
  ASSERT_TRUE(pass_another());
  while (Count("lock_token IS NULL AND error_code IS NOT NULL") == 0) std::this_thread::yield();
  MakeDue();
  for (size_t failures = 1; failures < 25; ++failures) {
    ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() > failures; }));
    // The mark follows the event; only then can the row be made due.
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
    ASSERT_TRUE(pass_another());
    MakeDue();
  }
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_EQ(Count("attempts = 25 AND dead_at IS NOT NULL AND error_code = 'UNKNOWN.INTERNAL'"), 1);
}

TEST_F(RelayTest, ADeadRowHoldsItsAggregateUntilItIsReplayed) {
  EnqueueMany("k", 3);
  SpoilFirstVersions();
  Enqueue("other", 2);
  const auto owner = StartOwner();
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  EXPECT_THAT(owner->events.dead, ElementsAre("k:1 SCHEMA.VALIDATION_FAILED"));
  Enqueue("k", 4);
  Enqueue("other", 3);
  ASSERT_TRUE(AwaitPublished(2));
  EXPECT_EQ(Published(), "other:2 other:3");
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1"), 1);
  db_.Run("UPDATE shop.outbox SET attributes = '{}' WHERE version = 1");
  db_.Run("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')");
  ASSERT_TRUE(AwaitPublished(6));
  EXPECT_EQ(Published(), "other:2 other:3 k:1 k:2 k:3 k:4");
}

TEST_F(RelayTest, SkipLetsTheAggregateGoOn) {
  RelayOptions options = Options();
  options.on_dead = OnDead::kSkip;
  EnqueueMany("k", 3);
  SpoilFirstVersions();
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
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.retries.empty(); }));
  Enqueue("another", 1);  // it passes too, so that the row is known to be refused for good
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, ElementsAre("k333:1 SCHEMA.VALIDATION_FAILED"));
  EXPECT_EQ(dispatcher.largest, 1000u);
  EXPECT_EQ(dispatcher.delivered.size(), 999u);  // all but it and its successor, each once
  EXPECT_LT(dispatcher.requests, 60 + static_cast<int>(owner->events.retries.size()));
  EXPECT_EQ(Count("published_at IS NOT NULL AND attempts = 0"), 999);
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 2"), 1);
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

TEST_F(RelayTest, StopMarksWhatIsUnderWayAndGivesTheRestBack) {
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

}  // namespace
}  // namespace lockstep::publisher
