#include "pubsub/grpc/receive/lease_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pubsub/grpc/testing/fake_ack_rpc.h"
#include "tests/support/fake_clock.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class LeaseKeeperTest : public ::testing::Test {
 protected:
  ~LeaseKeeperTest() override {
    keeper_.Stop();
    rpc_.FailOpen();
  }

  void Deliver(const std::vector<std::string>& ids) {
    std::vector<Delivery> deliveries;
    for (const std::string& id : ids) {
      Delivery delivery;
      delivery.token = AckToken(id);
      delivery.message.data = "12345";
      deliveries.push_back(delivery);
    }
    keeper_.Add(deliveries, clock_.Steady());
  }
  void Pass(Millis time) {
    clock_.Advance(time);
    keeper_.Tick();
  }

  FakeAckRpc rpc_;
  Timers timers_;
  testing::FakeClock clock_;
  std::vector<std::string> lost_;
  Load lost_in_hand_;
  LeaseKeeper keeper_{{.subscription = "sub",
                       .client_id = {},
                       .ack_deadline = Millis(20'000),
                       .max_extension = Millis(55'000)},
                      rpc_,
                      timers_,
                      clock_,
                      [this](const std::vector<AckToken>& tokens, Load in_hand) {
                        for (const AckToken& token : tokens) lost_.push_back(token.value());
                        lost_in_hand_ = in_hand;
                      }};
};

TEST_F(LeaseKeeperTest, ExtendsTogetherWhatIsHalfOver) {
  Deliver({"a", "b"});
  Pass(Millis(9'000));
  EXPECT_EQ(rpc_.count(), 0u);
  Pass(Millis(1'000));
  ASSERT_EQ(rpc_.count(), 1u);
  EXPECT_THAT(rpc_.Get(0).ids, UnorderedElementsAre("a", "b"));
  EXPECT_EQ(rpc_.Get(0).seconds, 20);
  rpc_.Answer(0);
  Pass(Millis(9'000));
  EXPECT_EQ(rpc_.count(), 1u);
  Pass(Millis(1'000));
  EXPECT_EQ(rpc_.count(), 2u);
}

TEST_F(LeaseKeeperTest, ReportsTheLossAtMaxExtension) {
  Deliver({"a"});
  size_t answered = 0;
  for (int i = 0; i < 54; ++i) {
    Pass(Millis(1'000));
    while (answered < rpc_.count()) rpc_.Answer(answered++);
  }
  EXPECT_THAT(lost_, IsEmpty());
  Pass(Millis(1'000));
  EXPECT_THAT(lost_, ElementsAre("a"));
  EXPECT_EQ(lost_in_hand_.messages, 1);
  EXPECT_EQ(lost_in_hand_.bytes, 5);
  EXPECT_EQ(rpc_.Get(answered - 1).seconds, 15);  // not past max_extension
}

TEST_F(LeaseKeeperTest, WarnsOnceAtHalfOfMaxExtension) {
  size_t answered = 0;
  const auto said = [&](int seconds) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < seconds; ++i) {
      Pass(Millis(1'000));
      while (answered < rpc_.count()) rpc_.Answer(answered++);
    }
    return ::testing::internal::GetCapturedStderr();
  };
  Deliver({"a", "b"});
  EXPECT_THAT(said(27), IsEmpty());
  EXPECT_THAT(said(1), AllOf(HasSubstr("level=warning"), HasSubstr("half of max_extension"),
                             HasSubstr("subscription=sub messages=2")));
  EXPECT_THAT(said(26), IsEmpty());
}

TEST_F(LeaseKeeperTest, ReportsALeaseThatLapsedBecauseNoExtensionGotThrough) {
  Deliver({"a"});
  Pass(Millis(10'000));
  rpc_.Answer(0, absl::UnavailableError("down"));
  Pass(Millis(5'000));
  rpc_.Answer(1, absl::UnavailableError("down"));
  EXPECT_THAT(lost_, IsEmpty());
  Pass(Millis(5'000));
  EXPECT_THAT(lost_, ElementsAre("a"));
}

TEST_F(LeaseKeeperTest, ReportsWhatTheServerRefusesToExtend) {
  Deliver({"a", "b"});
  Pass(Millis(10'000));
  rpc_.Answer(0, absl::InvalidArgumentError("some"), {{"b", "PERMANENT_FAILURE_INVALID_ACK_ID"}});
  EXPECT_THAT(lost_, ElementsAre("b"));
  Pass(Millis(10'000));
  EXPECT_THAT(rpc_.Get(1).ids, ElementsAre("a"));
}

TEST_F(LeaseKeeperTest, KeepsALeaseWhileItsAckIsUnderWayAndReportsNoLoss) {
  Deliver({"a"});
  EXPECT_EQ(keeper_.BeginAck({AckToken("a")}).messages, 1);
  EXPECT_EQ(keeper_.BeginAck({AckToken("a")}).messages, 0);  // given back once only
  Pass(Millis(10'000));
  EXPECT_THAT(rpc_.Get(0).ids, ElementsAre("a"));
  rpc_.Answer(0, absl::InvalidArgumentError("acked"), {{"a", "PERMANENT_FAILURE_INVALID_ACK_ID"}});
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_EQ(keeper_.Remove({AckToken("a")}).messages, 0);
}

TEST_F(LeaseKeeperTest, ForgetsWhatIsReleased) {
  Deliver({"a"});
  EXPECT_EQ(keeper_.Remove({AckToken("a"), AckToken("unknown")}).bytes, 5);
  Pass(Millis(15'000));
  EXPECT_EQ(rpc_.count(), 0u);
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
