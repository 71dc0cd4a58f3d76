#include "pubsub/grpc/publish/publish_retries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>

#include "pubsub/grpc/testing/ends_early.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using ::testing::ElementsAre;

class PublishRetriesTest : public ::testing::Test {
 protected:
  // "id-a", or the name of the error code.
  std::vector<std::string> Send(std::vector<std::string> data, Millis timeout = Millis(5'000)) {
    return Begin(std::move(data), timeout).get();
  }
  std::future<std::vector<std::string>> Begin(std::vector<std::string> data,
                                              Millis timeout = Millis(5'000)) {
    auto request = std::make_shared<PublishCalls::Request>();
    request->topic = "t";
    request->deadline = std::chrono::steady_clock::now() + timeout;
    for (std::string& word : data) request->messages.emplace_back().data = std::move(word);
    const auto words = std::make_shared<std::promise<std::vector<std::string>>>();
    retries_.Send(request, [words](const PublishCalls::Results& results) {
      std::vector<std::string> all;
      for (const auto& result : results) {
        all.push_back(result.ok() ? result->value()
                                  : absl::StatusCodeToString(result.status().code()));
      }
      words->set_value(std::move(all));
    });
    return words->get_future();
  }

  // Answers each try, on the timers' thread, with the next status, in the end with always_.
  void Answer(const PublishCalls::Request& request, const PublishRetries::Done& done) {
    if (on_send) on_send();
    sent_.push_back(request.messages.size());
    absl::Status status;
    if (!answers_.empty()) {
      status = answers_.front();
      answers_.pop_front();
    } else {
      status = always_;
    }
    std::vector<std::string> ids;
    for (const Message& message : request.messages) ids.push_back("id-" + message.data);
    timers_.Now([status, ids = std::move(ids), done] { done(status, ids); });
  }

  std::deque<absl::Status> answers_;
  absl::Status always_;
  std::vector<size_t> sent_;  // messages of each try
  std::function<void()> on_send;
  Timers timers_;
  PublishRetries retries_{[this](const PublishCalls::Request& request, Millis,
                                 PublishRetries::Done done) { Answer(request, done); },
                          timers_};
};

TEST_F(PublishRetriesTest, SendsARequestAgainAsItIsAfterAPassingFault) {
  answers_ = {absl::UnavailableError("down"), absl::ResourceExhaustedError("much")};
  EXPECT_THAT(Send({"a", "b"}), ElementsAre("id-a", "id-b"));
  EXPECT_THAT(sent_, ElementsAre(2, 2, 2));
}

TEST_F(PublishRetriesTest, DoesNotSendAgainWhatWasRefused) {
  answers_ = {absl::InvalidArgumentError("no")};
  EXPECT_THAT(Send({"a", "b"}), ElementsAre("INVALID_ARGUMENT", "INVALID_ARGUMENT"));
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(PublishRetriesTest, GivesUpAtTheDeadline) {
  always_ = absl::UnavailableError("down");
  EXPECT_THAT(Send({"a"}, Millis(100)), ElementsAre("UNAVAILABLE"));
}

TEST_F(PublishRetriesTest, CloseEndsWhatWaitsForItsNextTry) {
  always_ = absl::UnavailableError("down");
  auto result = Begin({"a"});
  std::promise<void> answered;  // the timers run one function after the other
  timers_.Now([&] { answered.set_value(); });
  answered.get_future().wait();
  retries_.Close();
  EXPECT_THAT(result.get(), ElementsAre("CANCELLED"));
}

TEST_F(PublishRetriesTest, CloseWaitsForARequestThatIsJustSentAgain) {
  answers_ = {absl::UnavailableError("down")};
  EndsEarly ends;
  int tries = 0;
  on_send = [&] {
    if (++tries == 2) ends.Begin([this] { retries_.Close(); });
  };
  auto result = Begin({"a"});
  EXPECT_FALSE(ends.Await());
  EXPECT_THAT(result.get(), ElementsAre("id-a"));
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
