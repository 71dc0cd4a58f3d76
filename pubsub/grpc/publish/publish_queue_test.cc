#include "pubsub/grpc/publish/publish_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <optional>

#include "pubsub/grpc/testing/ends_early.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using ::testing::ElementsAre;
using Results = std::vector<absl::StatusOr<MessageId>>;

// Keeps the requests until the test answers them.
class FakeRpc : public PublishRpc {
 public:
  struct Sent {
    std::string topic;
    std::vector<std::string> data;
    Done done;
  };

  void Send(const std::string& topic, const std::vector<Message>& messages, Millis,
            Done done) override {
    if (on_send) on_send();
    std::scoped_lock lock(mu_);
    Sent& sent = sent_.emplace_back();
    sent.topic = topic;
    for (const Message& message : messages) sent.data.push_back(message.data);
    sent.done = std::move(done);
    changed_.notify_all();
  }

  size_t count() {
    std::scoped_lock lock(mu_);
    return sent_.size();
  }

  std::vector<std::string> Data(size_t index) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return sent_.size() > index; });
    return sent_[index].data;
  }

  void Answer(size_t index, const absl::Status& status = absl::OkStatus()) {
    Done done;
    std::vector<std::string> ids;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [&] { return sent_.size() > index; });
      done = std::exchange(sent_[index].done, nullptr);
      for (const std::string& data : sent_[index].data) ids.push_back("id-" + data);
    }
    done(status, std::move(ids));
  }

  // Whatever is open: so that a queue that goes away finds nothing under way.
  void FailOpen() {
    for (size_t i = 0; i < count(); ++i) {
      Done done;
      {
        std::scoped_lock lock(mu_);
        done = std::exchange(sent_[i].done, nullptr);
      }
      if (done) done(absl::CancelledError(), {});
    }
  }

  std::function<void()> on_send;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Sent> sent_;
};

// One call's results, once they are there.
class Outcome {
 public:
  Publisher::Done done() {
    return [this](Results results) {
      std::scoped_lock lock(mu_);
      ASSERT_FALSE(results_.has_value()) << "reported twice";
      results_ = std::move(results);
      changed_.notify_all();
    };
  }
  bool reported() {
    std::scoped_lock lock(mu_);
    return results_.has_value();
  }
  // "id-a", or the name of the error code.
  std::vector<std::string> Await() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return results_.has_value(); });
    std::vector<std::string> words;
    for (const auto& result : *results_) {
      words.push_back(result.ok() ? result->value()
                                  : absl::StatusCodeToString(result.status().code()));
    }
    return words;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::optional<Results> results_;
};

Message Of(std::string data, std::string key = "") {
  Message message;
  message.data = std::move(data);
  message.ordering_key = std::move(key);
  return message;
}

class PublishQueueTest : public ::testing::Test {
 protected:
  ~PublishQueueTest() override {
    queue_.Close();
    rpc_.FailOpen();
  }

  Outcome& NewOutcome() { return outcomes_.emplace_back(); }
  // Until the timers' thread has come back from callbacks that have been called.
  void AwaitReports() {
    Outcome& outcome = NewOutcome();
    queue_.Publish("t", {}, outcome.done());
    outcome.Await();
  }

  std::deque<Outcome> outcomes_;  // they live as long as the queue
  FakeRpc rpc_;
  Timers timers_;
  PublishQueue queue_{PublisherOptions{.timeout = Millis(5'000), .max_requests_in_flight = 2}, rpc_,
                      timers_};
};

TEST_F(PublishQueueTest, HasOneRequestPerKeyInFlight) {
  Outcome& first = NewOutcome();
  Outcome& second = NewOutcome();
  queue_.Publish("t", {Of("a", "k")}, first.done());
  queue_.Publish("t", {Of("b", "k"), Of("c", "k"), Of("d", "other")}, second.done());
  EXPECT_THAT(rpc_.Data(0), ElementsAre("a"));
  EXPECT_THAT(rpc_.Data(1), ElementsAre("d"));  // the other key does not wait
  rpc_.Answer(0);
  EXPECT_THAT(first.Await(), ElementsAre("id-a"));
  EXPECT_THAT(rpc_.Data(2), ElementsAre("b", "c"));
  EXPECT_FALSE(second.reported());
  rpc_.Answer(2);
  rpc_.Answer(1);
  EXPECT_THAT(second.Await(), ElementsAre("id-b", "id-c", "id-d"));
}

TEST_F(PublishQueueTest, GathersWhileTheSlotsAreTaken) {
  for (int i = 0; i < 5; ++i) queue_.Publish("t", {Of(std::to_string(i))}, NewOutcome().done());
  EXPECT_EQ(rpc_.count(), 2u);
  rpc_.Answer(0);
  EXPECT_THAT(rpc_.Data(2), ElementsAre("2", "3", "4"));
}

TEST_F(PublishQueueTest, FollowsANewLimitFromTheNextRequestOn) {
  for (int i = 0; i < 2; ++i) queue_.Publish("t", {Of("x")}, NewOutcome().done());
  queue_.SetMaxRequests(3);
  for (int i = 0; i < 2; ++i) queue_.Publish("t", {Of("y")}, NewOutcome().done());
  EXPECT_EQ(rpc_.count(), 3u);
}

TEST_F(PublishQueueTest, SplitsByCountAndBytes) {
  Outcome& many = NewOutcome();
  std::vector<Message> messages;
  for (int i = 0; i < kMaxPublishMessages + 1; ++i) messages.push_back(Of("x"));
  queue_.Publish("t", std::move(messages), many.done());
  EXPECT_EQ(rpc_.Data(0).size(), static_cast<size_t>(kMaxPublishMessages));
  EXPECT_EQ(rpc_.Data(1).size(), 1u);
  rpc_.Answer(0);
  rpc_.Answer(1);
  Outcome& large = NewOutcome();
  queue_.Publish("t", {Of(std::string(6'000'000, 'x')), Of(std::string(6'000'000, 'y'))},
                 large.done());
  EXPECT_EQ(rpc_.Data(2).size(), 1u);
  EXPECT_EQ(rpc_.Data(3).size(), 1u);
}

TEST_F(PublishQueueTest, SendsARequestAgainAsItIsAfterAPassingFault) {
  Outcome& outcome = NewOutcome();
  queue_.Publish("t", {Of("a", "k"), Of("b", "k")}, outcome.done());
  queue_.Publish("t", {Of("c", "k")}, [](const Results&) {});
  rpc_.Answer(0, absl::UnavailableError("down"));
  EXPECT_THAT(rpc_.Data(1), ElementsAre("a", "b"));  // c waits behind them
  rpc_.Answer(1);
  EXPECT_THAT(outcome.Await(), ElementsAre("id-a", "id-b"));
  EXPECT_THAT(rpc_.Data(2), ElementsAre("c"));
}

TEST_F(PublishQueueTest, AbortsTheSuccessorsOfAFailedMessage) {
  Outcome& first = NewOutcome();
  Outcome& second = NewOutcome();
  Outcome& other = NewOutcome();
  queue_.Publish("t", {Of("a", "k")}, first.done());
  queue_.Publish("t", {Of("b", "k")}, second.done());
  queue_.Publish("t", {Of("x", "fine")}, other.done());
  rpc_.Answer(0, absl::InvalidArgumentError("no"));
  EXPECT_THAT(first.Await(), ElementsAre("INVALID_ARGUMENT"));
  EXPECT_THAT(second.Await(), ElementsAre("ABORTED"));
  rpc_.Answer(1);
  EXPECT_THAT(other.Await(), ElementsAre("id-x"));
  Outcome& again = NewOutcome();
  queue_.Publish("t", {Of("a", "k"), Of("b", "k")}, again.done());
  rpc_.Answer(2);
  EXPECT_THAT(again.Await(), ElementsAre("id-a", "id-b"));
}

TEST_F(PublishQueueTest, AbortsWhatComesBeforeTheFailureIsReported) {
  Outcome& split = NewOutcome();  // two requests: its result is known when both are back
  std::vector<Message> messages = {Of("a", "k")};
  for (int i = 0; i < kMaxPublishMessages; ++i) messages.push_back(Of("x"));
  queue_.Publish("t", std::move(messages), split.done());
  rpc_.Answer(0, absl::InvalidArgumentError("no"));
  ASSERT_FALSE(split.reported());
  Outcome& late = NewOutcome();
  queue_.Publish("t", {Of("b", "k")}, late.done());
  EXPECT_THAT(late.Await(), ElementsAre("ABORTED"));
  AwaitReports();
  rpc_.Answer(1);
  EXPECT_EQ(split.Await()[0], "INVALID_ARGUMENT");
  Outcome& after = NewOutcome();
  queue_.Publish("t", {Of("b", "k")}, after.done());
  rpc_.Answer(2);
  EXPECT_THAT(after.Await(), ElementsAre("id-b"));
}

TEST_F(PublishQueueTest, AbortsWhatComesWhileTheFailureIsBeingReported) {
  Message bad = Of("a", "k");
  bad.attributes["long"] = std::string(kMaxAttributeValueBytes + 1, 'x');
  std::promise<void> told;
  std::promise<void> go_on;
  queue_.Publish("t", {bad}, [&](const Results&) {
    told.set_value();
    go_on.get_future().wait();
  });
  told.get_future().wait();
  Outcome& meanwhile = NewOutcome();
  queue_.Publish("t", {Of("b", "k")}, meanwhile.done());
  go_on.set_value();
  ASSERT_EQ(rpc_.count(), 0u);
  EXPECT_THAT(meanwhile.Await(), ElementsAre("ABORTED"));
  AwaitReports();
  queue_.Publish("t", {Of("a", "k"), Of("b", "k")}, NewOutcome().done());
  EXPECT_THAT(rpc_.Data(0), ElementsAre("a", "b"));
}

TEST_F(PublishQueueTest, RefusesWhatIsPastTheLimitsWithoutSendingIt) {
  Outcome& outcome = NewOutcome();
  Message bad = Of("b", "k");
  bad.attributes["long"] = std::string(kMaxAttributeValueBytes + 1, 'x');
  queue_.Publish("t", {Of("a", "k"), bad, Of("c", "k"), Of("d", "other")}, outcome.done());
  EXPECT_THAT(rpc_.Data(0), ElementsAre("a", "d"));
  rpc_.Answer(0);
  EXPECT_THAT(outcome.Await(), ElementsAre("id-a", "INVALID_ARGUMENT", "ABORTED", "id-d"));
}

TEST_F(PublishQueueTest, TakesTopicsInTurn) {
  queue_.Publish("a", {Of("1", "k")}, [](const Results&) {});
  queue_.Publish("b", {Of("2", "k")}, [](const Results&) {});
  EXPECT_THAT(rpc_.Data(0), ElementsAre("1"));
  EXPECT_THAT(rpc_.Data(1), ElementsAre("2"));  // a key belongs to its topic
}

TEST_F(PublishQueueTest, GivesUpAtTheTimeout) {
  Outcome& outcome = NewOutcome();
  PublishQueue impatient(PublisherOptions{.timeout = Millis(100), .max_requests_in_flight = 1},
                         rpc_, timers_);
  Outcome& follower = NewOutcome();
  impatient.Publish("t", {Of("a", "k")}, outcome.done());
  impatient.Publish("t", {Of("b", "k")}, follower.done());
  for (size_t i = 0; !outcome.reported(); ++i) rpc_.Answer(i, absl::UnavailableError("down"));
  EXPECT_THAT(outcome.Await(), ElementsAre("UNAVAILABLE"));
  EXPECT_THAT(follower.Await(), ElementsAre("ABORTED"));
}

TEST_F(PublishQueueTest, CancelsEverythingWhenItCloses) {
  Outcome& flying = NewOutcome();
  Outcome& waiting = NewOutcome();
  Outcome& late = NewOutcome();
  queue_.Publish("t", {Of("a", "k")}, flying.done());
  queue_.Publish("t", {Of("b", "k")}, waiting.done());
  queue_.Close();
  EXPECT_THAT(waiting.Await(), ElementsAre("CANCELLED"));
  rpc_.Answer(0, absl::CancelledError());
  EXPECT_THAT(flying.Await(), ElementsAre("CANCELLED"));
  queue_.Publish("t", {Of("c")}, late.done());
  EXPECT_THAT(late.Await(), ElementsAre("CANCELLED"));
}

TEST_F(PublishQueueTest, CloseWaitsForARequestThatIsJustSentAgain) {
  queue_.Publish("t", {Of("a")}, NewOutcome().done());
  EndsEarly ends;
  rpc_.on_send = [&] { ends.Begin([this] { queue_.Close(); }); };
  rpc_.Answer(0, absl::UnavailableError("down"));
  EXPECT_FALSE(ends.Await());
}

TEST_F(PublishQueueTest, CloseWaitsForAResultThatIsJustReported) {
  EndsEarly ends;
  queue_.Publish("t", {}, [&](const Results&) { ends.Begin([this] { queue_.Close(); }); });
  EXPECT_FALSE(ends.Await());
}

TEST_F(PublishQueueTest, AnswersACallWithoutMessages) {
  Outcome& outcome = NewOutcome();
  queue_.Publish("t", {}, outcome.done());
  EXPECT_TRUE(outcome.Await().empty());
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
