// A row is at fault when it fails alone while others of its topic pass, and not before.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "publisher/relay/relay.h"
#include "publisher/testing/relay_test.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RelayBlame : public RelayTest, public ::testing::WithParamInterface<absl::StatusCode> {
 protected:
  // Publishes rows of other keys until `done`.
  bool PassOthersUntil(const std::function<bool()>& done) {
    return testing::Eventually([&] {
      if (done()) return true;
      Enqueue("other", ++others_);
      return false;
    });
  }

 private:
  int64_t others_ = 0;
};

TEST_P(RelayBlame, AFaultOfTheWholeBusKillsNoRow) {
  std::atomic<bool> mended = false;
  std::atomic<int> calls = 0;
  bus_.OnPublish([&](const std::string&, const pubsub::Message&) {
    ++calls;
    return mended ? absl::OkStatus() : absl::Status(GetParam(), "not today");
  });
  RelayOptions options = Options();
  options.retry.max_attempts = 1;
  for (int i = 0; i < 20; ++i) EnqueueMany(fmt::format("k{}", i), 2);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(testing::Eventually([&] { return calls > 200; }));
  EXPECT_EQ(Count("attempts > 0 OR dead_at IS NOT NULL"), 0);
  mended = true;
  ASSERT_TRUE(AwaitPublished(40));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, IsEmpty());
  EXPECT_FALSE(owner->events.outages.empty()) << "and the page says so";
}

INSTANTIATE_TEST_SUITE_P(Codes, RelayBlame,
                         ::testing::Values(absl::StatusCode::kInternal, absl::StatusCode::kUnknown,
                                           absl::StatusCode::kFailedPrecondition,
                                           absl::StatusCode::kUnimplemented,
                                           absl::StatusCode::kDataLoss),
                         [](const auto& code) { return absl::StatusCodeToString(code.param); });

// It has passed rows before the fault, and passes some again: that says nothing of those that wait.
TEST_F(RelayBlame, AFaultThatComesAndGoesKillsNoRowThatPassesInBetween) {
  std::atomic<bool> broken = false;
  bus_.OnPublish([&](const std::string&, const pubsub::Message&) {
    return broken ? absl::InternalError("not today") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.max_attempts = 1;
  const auto owner = StartOwner(options);
  for (int round = 1; round <= 3; ++round) {
    broken = true;
    const int failed = [&] {
      const std::scoped_lock lock(owner->events.mu);
      return owner->events.failed;
    }();
    for (int i = 0; i < 5; ++i) Enqueue(fmt::format("k{}", i), round);
    ASSERT_TRUE(owner->events.Await([&] { return owner->events.failed > failed + 10; }));
    broken = false;
    ASSERT_TRUE(AwaitPublished(5 * static_cast<size_t>(round)));
  }
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, IsEmpty());
}

// The bus refuses the request as a whole: the row at fault has to be found first.
TEST_F(RelayBlame, OneRowThatFailsWhileOthersPassDies) {
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "bad" ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.max_attempts = 3;
  EnqueueMany("bad", 2);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(PassOthersUntil([&] { return Count("dead_at IS NOT NULL AND attempts = 3") == 1; }));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, ElementsAre("bad:1 UNKNOWN.INTERNAL"));
  EXPECT_THAT(owner->events.outages, IsEmpty());
}

// Nobody else is there to show whose fault it is, and nobody waits for it.
TEST_F(RelayBlame, ARowAloneOnItsTopicIsTriedOnAndPausesNobody) {
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "bad" ? absl::InternalError("no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.max_attempts = 1;
  Enqueue("bad", 1);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() > 5; }));
  EXPECT_EQ(Count("attempts = 0 AND error_code = 'UNKNOWN.INTERNAL'"), 1);
  Enqueue("good", 1);
  ASSERT_TRUE(AwaitPublished(1));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.outages, IsEmpty());
}

}  // namespace
}  // namespace lockstep::publisher
