#include "pubsub/google_cloud/publish_lanes.h"

#include <gtest/gtest.h>

namespace lockstep::pubsub::google_cloud {
namespace {

// Answers when the test says so.
class PublishLanesTest : public ::testing::Test {
 protected:
  struct Sent {
    PublishLanes::Burst burst;
    PublishLanes::Answer answer;
  };

  // Results by name: "ok", or the code's.
  std::vector<std::string>& Publish(std::vector<std::pair<std::string, std::string>> key_and_data) {
    std::vector<Message> messages;
    for (auto& [key, data] : key_and_data) {
      Message& message = messages.emplace_back();
      message.ordering_key = key;
      message.data = data;
    }
    auto& results = results_.emplace_back(std::make_unique<std::vector<std::string>>());
    lanes_->Publish("t", std::move(messages), [&results = *results](PublishLanes::Results all) {
      for (const auto& result : all) {
        results.push_back(result.ok() ? "ok" : absl::StatusCodeToString(result.status().code()));
      }
    });
    return *results;
  }

  std::vector<std::string> Data(size_t index) const {
    std::vector<std::string> data;
    for (const Message& message : sent_.at(index).burst.messages) data.push_back(message.data);
    return data;
  }

  void Answer(size_t index, const absl::Status& status = absl::OkStatus()) {
    const size_t count = sent_[index].burst.messages.size();
    const PublishLanes::Answer answer = sent_[index].answer;
    answer(status.ok() ? PublishLanes::Results(count, MessageId("id"))
                       : PublishLanes::Results(count, status));
  }

  void MakeLanes(PublisherOptions options) {
    lanes_ = std::make_unique<PublishLanes>(
        options,
        [this](PublishLanes::Burst burst, PublishLanes::Answer answer) {
          sent_.push_back({std::move(burst), std::move(answer)});
        },
        [this](std::function<void()> job) { posted_.push_back(std::move(job)); });
  }
  void RunPosted() {
    for (auto& job : std::exchange(posted_, {})) job();
  }
  void SetUp() override { MakeLanes({}); }

  std::vector<Sent> sent_;
  std::vector<std::function<void()>> posted_;
  std::vector<std::unique_ptr<std::vector<std::string>>> results_;
  std::unique_ptr<PublishLanes> lanes_;
};

using Strings = std::vector<std::string>;

TEST_F(PublishLanesTest, SendsAKeysMessagesTogetherAndKeysApart) {
  const auto& results = Publish({{"a", "1"}, {"b", "2"}, {"a", "3"}, {"b", "4"}});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(Data(0), (Strings{"1", "3"}));
  EXPECT_EQ(Data(1), (Strings{"2", "4"}));
  Answer(0);
  EXPECT_TRUE(results.empty()) << "reported once all of the call is known";
  Answer(1);
  EXPECT_EQ(results, (Strings{"ok", "ok", "ok", "ok"}));
}

TEST_F(PublishLanesTest, HasOneBurstOfAKeyUnderWay) {
  Publish({{"a", "1"}});
  Publish({{"a", "2"}, {"a", "3"}});
  ASSERT_EQ(sent_.size(), 1u);
  Answer(0);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(Data(1), (Strings{"2", "3"}));
}

TEST_F(PublishLanesTest, HasNoMoreUnderWayThanItMay) {
  MakeLanes({.max_requests_in_flight = 2});
  Publish({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"", "4"}});
  EXPECT_EQ(sent_.size(), 2u);
  Answer(0);
  EXPECT_EQ(sent_.size(), 3u);
  Answer(1);
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(PublishLanesTest, FollowsANewLimitFromTheNextRequestOn) {
  MakeLanes({.max_requests_in_flight = 1});
  Publish({{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(sent_.size(), 1u);
  lanes_->SetMaxRequests(3);
  Publish({{"c", "3"}, {"d", "4"}});
  EXPECT_EQ(sent_.size(), 3u);
}

TEST_F(PublishLanesTest, CutsBurstsAtTheLimitsOfARequest) {
  Publish(std::vector<std::pair<std::string, std::string>>(2'500, {"a", "x"}));
  EXPECT_EQ(sent_[0].burst.messages.size(), 1'000u);
  Answer(0);
  Answer(1);
  EXPECT_EQ(sent_.at(2).burst.messages.size(), 500u);
  Publish({{"b", std::string(6'000'000, 'x')}, {"b", std::string(6'000'000, 'x')}});
  EXPECT_EQ(sent_.at(3).burst.messages.size(), 1u);
}

TEST_F(PublishLanesTest, AbortsWhatWaitsBehindAFailureAndGoesOnAfterwards) {
  const auto& first = Publish({{"a", "1"}, {"b", "2"}});
  const auto& second = Publish({{"a", "3"}});
  Answer(0, absl::InvalidArgumentError("no"));
  EXPECT_EQ(second, Strings{"ABORTED"});
  EXPECT_TRUE(first.empty()) << "b is not known yet";
  const auto& third = Publish({{"a", "4"}});
  RunPosted();
  EXPECT_EQ(third, Strings{"ABORTED"}) << "the failure is not reported yet";
  Answer(1);
  EXPECT_EQ(first, (Strings{"INVALID_ARGUMENT", "ok"}));
  Publish({{"a", "1"}, {"a", "3"}});
  EXPECT_EQ(Data(2), (Strings{"1", "3"}));
}

TEST_F(PublishLanesTest, RefusesWhatIsTooLargeAndAbortsItsSuccessors) {
  const auto& results =
      Publish({{"a", "1"}, {"a", std::string(11'000'000, 'x')}, {"a", "3"}, {"b", "4"}});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(Data(0), Strings{"1"});
  Answer(0);
  Answer(1);
  EXPECT_EQ(results, (Strings{"ok", "INVALID_ARGUMENT", "ABORTED", "ok"}));
}

TEST_F(PublishLanesTest, AbortsWhatComesBeforeARefusalIsReported) {
  const auto& first = Publish({{"a", std::string(11'000'000, 'x')}});
  const auto& second = Publish({{"a", "2"}});
  ASSERT_TRUE(sent_.empty());
  RunPosted();
  EXPECT_EQ(first, Strings{"INVALID_ARGUMENT"});
  EXPECT_EQ(second, Strings{"ABORTED"});
  Publish({{"a", "2"}});
  EXPECT_EQ(Data(0), Strings{"2"});
}

TEST_F(PublishLanesTest, NeverReportsOnTheCallersThread) {
  const auto& results = Publish({{"a", std::string(11'000'000, 'x')}});
  EXPECT_TRUE(results.empty());
  RunPosted();
  EXPECT_EQ(results, Strings{"INVALID_ARGUMENT"});
}

TEST_F(PublishLanesTest, MessagesWithoutAKeyHoldNobodyUp) {
  Publish({{"", "1"}});
  Publish({{"", "2"}});
  ASSERT_EQ(sent_.size(), 2u);
  const auto& third = Publish({{"", "3"}});
  Answer(0, absl::InvalidArgumentError("no"));
  Answer(2);
  EXPECT_EQ(third, Strings{"ok"});
}

TEST_F(PublishLanesTest, CloseCancelsWhatWaitsAndThenWhatIsUnderWay) {
  const auto& first = Publish({{"a", "1"}});
  const auto& second = Publish({{"a", "2"}});
  lanes_->Close();
  EXPECT_EQ(second, Strings{"CANCELLED"});
  EXPECT_FALSE(lanes_->Idle());
  Answer(0, absl::UnavailableError("cut"));
  EXPECT_EQ(first, Strings{"CANCELLED"});
  EXPECT_TRUE(lanes_->Idle());
  const auto& third = Publish({{"a", "3"}});
  RunPosted();
  EXPECT_EQ(third, Strings{"CANCELLED"});
}

}  // namespace
}  // namespace lockstep::pubsub::google_cloud
