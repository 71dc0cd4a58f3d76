#include "pubsub/grpc/receive/ack_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "pubsub/grpc/testing/ends_early.h"
#include "pubsub/grpc/testing/fake_ack_rpc.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<AckToken> Tokens(const std::vector<std::string>& ids) {
  std::vector<AckToken> tokens;
  for (const std::string& id : ids) tokens.emplace_back(id);
  return tokens;
}

class AckWriterTest : public ::testing::Test {
 protected:
  ~AckWriterTest() override {
    writer_.Close();
    rpc_.FailOpen();
  }

  std::future<std::vector<std::string>> Add(AckWriter& writer,
                                            const std::vector<std::string>& ids) {
    auto promise = std::make_shared<std::promise<std::vector<std::string>>>();
    writer.Add(Tokens(ids), [promise](const std::vector<absl::Status>& statuses) {
      std::vector<std::string> codes;
      for (const auto& status : statuses) codes.push_back(absl::StatusCodeToString(status.code()));
      promise->set_value(codes);
    });
    return promise->get_future();
  }
  std::future<std::vector<std::string>> Add(const std::vector<std::string>& ids) {
    return Add(writer_, ids);
  }

  FakeAckRpc rpc_;
  Timers timers_;
  AckWriter writer_{AckWriter::Kind::kAck, rpc_, Millis(5'000), timers_};
};

TEST_F(AckWriterTest, GathersWhileARequestIsUnderWay) {
  auto first = Add({"a"});
  auto second = Add({"b"});
  auto third = Add({"c", "d"});
  EXPECT_THAT(rpc_.Get(0).ids, ElementsAre("a"));
  EXPECT_EQ(rpc_.count(), 1u);
  rpc_.Answer(0);
  EXPECT_THAT(first.get(), ElementsAre("OK"));
  EXPECT_THAT(rpc_.Get(1).ids, ElementsAre("b", "c", "d"));
  rpc_.Answer(1);
  EXPECT_THAT(second.get(), ElementsAre("OK"));
  EXPECT_THAT(third.get(), ElementsAre("OK", "OK"));
}

TEST_F(AckWriterTest, StaysWithinTheRequestLimit) {
  std::vector<std::string> ids;
  for (int i = 0; i < 4'000; ++i) ids.push_back(std::string(196, 'x') + std::to_string(i));
  auto result = Add(ids);
  size_t sent = 0;
  for (size_t i = 0; sent < ids.size(); ++i) {
    int64_t bytes = 0;
    for (const std::string& id : rpc_.Get(i).ids) bytes += static_cast<int64_t>(id.size()) + 3;
    EXPECT_LE(bytes, kMaxAckRequestBytes);
    sent += rpc_.Get(i).ids.size();
    rpc_.Answer(i);
  }
  EXPECT_GT(rpc_.count(), 1u);
  EXPECT_EQ(result.get(), std::vector<std::string>(ids.size(), "OK"));
}

TEST_F(AckWriterTest, RetriesWhatExactlyOnceRefusedForNowAndReportsWhatItRefusedForGood) {
  auto result = Add({"good", "later", "gone"});
  rpc_.Answer(0, absl::InvalidArgumentError("some"),
              {{"later", "TRANSIENT_FAILURE_UNORDERED_ACK_ID"},
               {"gone", "PERMANENT_FAILURE_INVALID_ACK_ID"}});
  EXPECT_THAT(rpc_.Get(1).ids, ElementsAre("later"));
  rpc_.Answer(1);
  EXPECT_THAT(result.get(), ElementsAre("OK", "OK", "FAILED_PRECONDITION"));
}

TEST_F(AckWriterTest, FindsTheOneThatIsRefusedWithoutAName) {
  auto result = Add({"a", "b", "bad", "d", "e"});
  std::promise<void> done;
  size_t answered = 0;
  auto ready = [&] {
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  while (!ready()) {
    const auto ids = rpc_.Get(answered).ids;
    const bool bad = std::count(ids.begin(), ids.end(), "bad") > 0;
    rpc_.Answer(answered++, bad ? absl::InvalidArgumentError("an id") : absl::OkStatus());
  }
  EXPECT_THAT(result.get(), ElementsAre("OK", "OK", "FAILED_PRECONDITION", "OK", "OK"));
}

TEST_F(AckWriterTest, RetriesAPassingFaultInOrder) {
  auto first = Add({"a", "b"});
  rpc_.Answer(0, absl::UnavailableError("down"));
  EXPECT_THAT(rpc_.Get(1).ids, ElementsAre("a", "b"));
  rpc_.Answer(1);
  EXPECT_THAT(first.get(), ElementsAre("OK", "OK"));
}

TEST_F(AckWriterTest, NeverSendsAnAckAfterItsTimeAndTellsWhatItGaveUp) {
  std::mutex mu;
  std::vector<AckToken> late;
  AckWriter writer(AckWriter::Kind::kAck, rpc_, Millis(100), timers_, nullptr,
                   [&](std::vector<AckToken> tokens) {
                     std::scoped_lock lock(mu);
                     late.insert(late.end(), tokens.begin(), tokens.end());
                   });
  auto first = Add(writer, {"a"});
  auto second = Add(writer, {"b"});  // waits behind the first until it is too late
  rpc_.Get(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // the time itself is the matter
  rpc_.Answer(0, absl::DeadlineExceededError("slow"));
  EXPECT_THAT(first.get(), ElementsAre("DEADLINE_EXCEEDED"));
  EXPECT_THAT(second.get(), ElementsAre("DEADLINE_EXCEEDED"));
  EXPECT_EQ(rpc_.count(), 1u);
  writer.Close();
  std::scoped_lock lock(mu);
  EXPECT_THAT(late, UnorderedElementsAre(AckToken("a"), AckToken("b")));
}

TEST_F(AckWriterTest, CloseWaitsForARequestThatIsJustSentAgain) {
  EndsEarly ends;
  int requests = 0;
  rpc_.on_send = [&] {
    if (++requests == 2) ends.Begin([this] { writer_.Close(); });
  };
  auto result = Add({"a"});
  rpc_.Answer(0, absl::UnavailableError("down"));
  EXPECT_FALSE(ends.Await());
  rpc_.Answer(1);
  EXPECT_THAT(result.get(), ElementsAre("OK"));
}

TEST_F(AckWriterTest, CloseWaitsForAResultThatIsJustReported) {
  EndsEarly ends;
  writer_.Add({}, [&](const auto&) { ends.Begin([this] { writer_.Close(); }); });
  EXPECT_FALSE(ends.Await());
}

TEST_F(AckWriterTest, CancelsWhatIsLeftWhenItCloses) {
  auto flying = Add({"a"});
  auto waiting = Add({"b"});
  writer_.Close();
  EXPECT_THAT(waiting.get(), ElementsAre("CANCELLED"));
  rpc_.Answer(0, absl::CancelledError());
  EXPECT_THAT(flying.get(), ElementsAre("CANCELLED"));
  EXPECT_THAT(Add({"c"}).get(), ElementsAre("CANCELLED"));
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
