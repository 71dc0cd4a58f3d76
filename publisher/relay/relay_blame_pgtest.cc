// A row is at fault when it fails alone while others of its topic pass, and not before.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>

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
                                           absl::StatusCode::kInvalidArgument,
                                           absl::StatusCode::kDataLoss),
                         [](const auto& code) { return absl::StatusCodeToString(code.param); });

// Answers when told, in the order of the test.
class InTurn : public Dispatcher {
 public:
  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    const std::scoped_lock lock(mu_);
    requests_.push_back({rows.front()->aggregate_id, rows.size(), std::move(done)});
  }
  // Waits for a request that begins with a row of `key`.
  bool Answer(const std::string& key, const absl::Status& status) {
    return testing::Eventually([&] {
      const std::scoped_lock lock(mu_);
      const auto found = std::ranges::find(requests_, key, &Request::key);
      if (found == requests_.end()) return false;
      found->done(std::vector<DispatchResult>(found->rows, {status, "", ""}));
      requests_.erase(found);
      return true;
    });
  }

 private:
  struct Request {
    std::string key;
    size_t rows;
    Done done;
  };
  std::mutex mu_;
  std::vector<Request> requests_;
};

// As a fault begins, what was sent before it may be answered after the first refusal.
TEST_F(RelayBlame, WhatWasSentBeforeTheRowFailedSaysNothingOfIt) {
  auto in_turn = std::make_unique<InTurn>();
  InTurn& bus = *in_turn;
  RelayOptions options = Options();
  options.retry.max_attempts = 1;
  const auto owner = StartOwner(options, std::move(in_turn));
  Enqueue("before", 1);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  Enqueue("k", 1);
  ASSERT_TRUE(bus.Answer("k", absl::InvalidArgumentError("no schema")));
  ASSERT_TRUE(bus.Answer("before", absl::OkStatus()));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.published == 1; }));
  ASSERT_TRUE(bus.Answer("k", absl::InvalidArgumentError("no schema")));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.failed == 2; }));
  EXPECT_THAT(owner->events.dead, IsEmpty());
  Enqueue("after", 1);
  ASSERT_TRUE(bus.Answer("after", absl::OkStatus()));
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.published == 2; }));
  ASSERT_TRUE(bus.Answer("k", absl::InvalidArgumentError("no schema")));
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, ElementsAre("k:1 SCHEMA.VALIDATION_FAILED"));
}

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

// One that was refused under two faults of everybody, and not tried between them, is innocent.
TEST_F(RelayBlame, ARefusedRowDiesWhenOthersHavePassedTwice) {
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "bad" ? absl::InvalidArgumentError("no") : absl::OkStatus();
  });
  Enqueue("bad", 1);
  const auto owner = StartOwner();  // 25 attempts
  ASSERT_TRUE(PassOthersUntil([&] { return Count("dead_at IS NOT NULL") == 1; }));
  owner->relay->Stop();
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 2"), 1);
  EXPECT_THAT(owner->events.dead, ElementsAre("bad:1 SCHEMA.VALIDATION_FAILED"));
}

// Nobody else is there to show whose fault it is, and nobody waits for it.
TEST_P(RelayBlame, ARowAloneOnItsTopicIsTriedOnAndPausesNobody) {
  bus_.OnPublish([&](const std::string&, const pubsub::Message& message) {
    return message.ordering_key == "bad" ? absl::Status(GetParam(), "no") : absl::OkStatus();
  });
  RelayOptions options = Options();
  options.retry.max_attempts = 1;
  Enqueue("bad", 1);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.retries.size() > 5; }));
  EXPECT_EQ(Count("attempts = 0 AND dead_at IS NULL AND error_code IS NOT NULL"), 1);
  EXPECT_TRUE(PassOthersUntil([&] { return Count("dead_at IS NOT NULL") == 1; }))
      << "now it is known to be alone";
  owner->relay->Stop();
  EXPECT_THAT(owner->events.outages, IsEmpty());
}

// It would never pass, whoever else does.
TEST_F(RelayBlame, WhatBreaksALimitIsDeadBeforeItIsSent) {
  std::atomic<int> calls = 0;
  bus_.OnPublish([&](const std::string&, const pubsub::Message&) {
    ++calls;
    return absl::OkStatus();
  });
  Enqueue("bad", 1);
  SpoilFirstVersions();
  const auto owner = StartOwner();
  ASSERT_TRUE(owner->events.Await([&] { return !owner->events.dead.empty(); }));
  owner->relay->Stop();
  EXPECT_THAT(owner->events.dead, ElementsAre("bad:1 SCHEMA.VALIDATION_FAILED"));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace lockstep::publisher
