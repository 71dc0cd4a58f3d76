// Settings that a running relay follows.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "publisher/relay/relay.h"
#include "publisher/testing/relay_test.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

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
  bus_.OnPublish([](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "k" ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.base = options.retry.cap = Millis(600'000);
  Enqueue("k", 1);
  const auto owner = StartOwner(options);
  const auto await_marked = [&](int attempts) {  // and others pass
    return testing::Eventually([&] {
             return Count(fmt::format("attempts = {} AND last_error IS NOT NULL AND lock_token IS "
                                      "NULL",
                                      attempts)) > 0;
           }) &&
           Enqueue("other", attempts + 1) > 0 && AwaitPublished(static_cast<size_t>(attempts) + 1);
  };
  ASSERT_TRUE(await_marked(0));
  MakeDue();
  ASSERT_TRUE(await_marked(1));
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

}  // namespace
}  // namespace lockstep::publisher
