#include "pubsub/publish_calls.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep::pubsub {
namespace {

using Strings = std::vector<std::string>;

// Answers when the test says so.
class PublishCallsTest : public ::testing::Test {
 protected:
  struct Sent {
    std::shared_ptr<const PublishCalls::Request> request;
    PublishCalls::Answer answer;
  };

  // Results by name: "ok", or the code's.
  Strings& Publish(const std::vector<std::pair<std::string, std::string>>& key_and_data) {
    std::vector<Message> messages;
    for (const auto& [key, data] : key_and_data) {
      Message& message = messages.emplace_back();
      message.ordering_key = key;
      message.data = data;
    }
    auto& results = results_.emplace_back(std::make_unique<Strings>());
    calls_->Publish(
        "t", std::move(messages), [&results = *results](const PublishCalls::Results& all) {
          for (const auto& result : all) {
            results.push_back(result.ok() ? "ok"
                                          : absl::StatusCodeToString(result.status().code()));
          }
        });
    return *results;
  }

  Strings Data(size_t index) const {
    Strings data;
    for (const Message& message : sent_.at(index).request->messages) data.push_back(message.data);
    return data;
  }
  size_t Size(size_t index) const { return sent_.at(index).request->messages.size(); }

  void Answer(size_t index, const absl::Status& status = absl::OkStatus()) {
    const PublishCalls::Answer answer = sent_.at(index).answer;
    answer(status.ok() ? PublishCalls::Results(Size(index), MessageId("id"))
                       : PublishCalls::Results(Size(index), status));
  }

  void Make(PublishCalls::Keys keys, PublisherOptions options = {}) {
    calls_ = std::make_unique<PublishCalls>(
        options, keys,
        [this](std::shared_ptr<const PublishCalls::Request> request, PublishCalls::Answer answer) {
          sent_.push_back({std::move(request), std::move(answer)});
        },
        [this](std::function<void()> job) { posted_.push_back(std::move(job)); });
  }
  void RunPosted() {
    for (auto& job : std::exchange(posted_, {})) job();
  }
  void SetUp() override { Make(PublishCalls::Keys::kMixed); }

  std::deque<Sent> sent_;
  std::vector<std::function<void()>> posted_;
  std::vector<std::unique_ptr<Strings>> results_;
  std::unique_ptr<PublishCalls> calls_;
};

const std::string kTooLarge(11'000'000, 'x');

TEST_F(PublishCallsTest, SendsACallAsOneRequestWhereKeysMayMix) {
  const auto& results = Publish({{"a", "1"}, {"b", "2"}, {"", "3"}, {"a", "4"}});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Data(0), (Strings{"1", "2", "3", "4"}));
  EXPECT_EQ(sent_[0].request->topic, "t");
  Answer(0);
  EXPECT_EQ(results, (Strings{"ok", "ok", "ok", "ok"}));
}

TEST_F(PublishCallsTest, SendsAKeysMessagesTogetherAndKeysApartWhereTheyMayNot) {
  Make(PublishCalls::Keys::kApart);
  const auto& results = Publish({{"a", "1"}, {"b", "2"}, {"a", "3"}, {"b", "4"}});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(Data(0), (Strings{"1", "3"}));
  EXPECT_EQ(Data(1), (Strings{"2", "4"}));
  Answer(0);
  EXPECT_TRUE(results.empty()) << "reported once all of the call is known";
  Answer(1);
  EXPECT_EQ(results, (Strings{"ok", "ok", "ok", "ok"}));
}

TEST_F(PublishCallsTest, CutsACallAtTheLimitsOfARequestAndSendsOneAfterTheOther) {
  auto& many = Publish(std::vector<std::pair<std::string, std::string>>(2'500, {"a", "x"}));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Size(0), 1'000u);
  Answer(0);
  ASSERT_EQ(sent_.size(), 2u);
  Answer(1);
  EXPECT_EQ(Size(2), 500u);
  EXPECT_TRUE(many.empty());
  Answer(2);
  EXPECT_EQ(many, Strings(2'500, "ok"));
  Publish({{"b", std::string(6'000'000, 'x')}, {"b", std::string(6'000'000, 'x')}});
  EXPECT_EQ(Size(3), 1u);
}

TEST_F(PublishCallsTest, HasNoMoreUnderWayThanItMay) {
  Make(PublishCalls::Keys::kApart, {.max_requests_in_flight = 2});
  Publish({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"", "4"}});
  EXPECT_EQ(sent_.size(), 2u);
  Answer(0);
  EXPECT_EQ(sent_.size(), 3u);
  Answer(1);
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(PublishCallsTest, FollowsANewLimitFromTheNextRequestOn) {
  Make(PublishCalls::Keys::kMixed, {.max_requests_in_flight = 1});
  for (const char* key : {"a", "b"}) Publish({{key, "1"}});
  EXPECT_EQ(sent_.size(), 1u);
  calls_->SetMaxRequests(3);
  for (const char* key : {"c", "d"}) Publish({{key, "1"}});
  EXPECT_EQ(sent_.size(), 3u);
}

TEST_F(PublishCallsTest, AbortsWhatStandsBehindAFailureInItsKeyOnly) {
  std::vector<std::pair<std::string, std::string>> messages(1'000, {"a", "x"});
  messages.insert(messages.end(), {{"a", "1"}, {"b", "2"}, {"", "3"}});
  const auto& results = Publish(messages);
  Answer(0, absl::InvalidArgumentError("no"));
  EXPECT_EQ(Data(1), (Strings{"2", "3"}));
  Answer(1);
  EXPECT_EQ(results[999], "INVALID_ARGUMENT");
  EXPECT_EQ(Strings(results.begin() + 1'000, results.end()), (Strings{"ABORTED", "ok", "ok"}));
  Publish({{"a", "1"}});
  EXPECT_EQ(Data(2), Strings{"1"}) << "the key goes on with the next call";
}

TEST_F(PublishCallsTest, MessagesWithoutAKeyHoldNobodyUp) {
  const auto& results = Publish(std::vector<std::pair<std::string, std::string>>(1'001, {"", "x"}));
  Answer(0, absl::InvalidArgumentError("no"));
  Answer(1);
  EXPECT_EQ(results[999], "INVALID_ARGUMENT");
  EXPECT_EQ(results[1'000], "ok");
}

TEST_F(PublishCallsTest, RefusesWhatIsTooLargeAndAbortsItsSuccessors) {
  const auto& results = Publish({{"a", "1"}, {"a", kTooLarge}, {"a", "3"}, {"b", "4"}});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Data(0), (Strings{"1", "4"}));
  Answer(0);
  EXPECT_EQ(results, (Strings{"ok", "INVALID_ARGUMENT", "ABORTED", "ok"}));
}

TEST_F(PublishCallsTest, NeverReportsOnTheCallersThread) {
  const auto& refused = Publish({{"a", kTooLarge}});
  const auto& none = Publish({});
  EXPECT_TRUE(refused.empty());
  EXPECT_EQ(posted_.size(), 2u) << "a call without messages is answered too";
  RunPosted();
  EXPECT_EQ(refused, Strings{"INVALID_ARGUMENT"});
  EXPECT_TRUE(none.empty());
}

TEST_F(PublishCallsTest, FailsWhatFoundNoSlotInTime) {
  Make(PublishCalls::Keys::kMixed, {.timeout = Millis(0), .max_requests_in_flight = 1});
  const auto& results = Publish({{"a", "1"}, {"b", "2"}});
  RunPosted();
  EXPECT_EQ(results, (Strings{"DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"}));
}

TEST_F(PublishCallsTest, CloseCancelsWhatWaitsAndThenWhatIsUnderWay) {
  Make(PublishCalls::Keys::kMixed, {.max_requests_in_flight = 1});
  const auto& first = Publish(std::vector<std::pair<std::string, std::string>>(1'001, {"a", "1"}));
  const auto& second = Publish({{"b", "2"}});
  calls_->Close();
  EXPECT_EQ(second, Strings{"CANCELLED"});
  EXPECT_FALSE(calls_->Idle());
  Answer(0, absl::UnavailableError("cut"));
  EXPECT_EQ(first, Strings(1'001, "CANCELLED"));
  EXPECT_TRUE(calls_->Idle());
  const auto& third = Publish({{"a", "3"}});
  RunPosted();
  EXPECT_EQ(third, Strings{"CANCELLED"});
}

TEST_F(PublishCallsTest, CloseWaitsForAResultThatIsJustReported) {
  Publish({{"a", kTooLarge}});
  auto closed = std::async(std::launch::async, [this] { calls_->Close(); });
  EXPECT_EQ(closed.wait_for(Millis(50)), std::future_status::timeout);
  RunPosted();
  closed.get();
}

}  // namespace
}  // namespace lockstep::pubsub
