#include "pubsub/grpc/receive/receipts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pubsub/grpc/testing/fake_ack_rpc.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReceiptsTest : public ::testing::Test {
 protected:
  ~ReceiptsTest() override { rpc_.FailOpen(); }

  void Add(const std::vector<std::string>& ids, bool confirm = true) {
    std::vector<Delivery> deliveries;
    for (const std::string& id : ids) deliveries.emplace_back().token = AckToken(id);
    receipts_.Add(std::move(deliveries), confirm);
  }

  FakeAckRpc rpc_;
  std::vector<std::string> held_;
  std::vector<std::string> refused_;
  Receipts receipts_{rpc_, Millis(60'000), [this](const Receipts::Batch& batch) {
                       for (const auto& each : batch.held) held_.push_back(each.token.value());
                       for (const auto& each : batch.refused)
                         refused_.push_back(each.token.value());
                     }};
};

TEST_F(ReceiptsTest, PassThroughWhereThereIsNothingToConfirm) {
  Add({"a", "b"}, false);
  EXPECT_EQ(rpc_.count(), 0u);
  EXPECT_THAT(held_, ElementsAre("a", "b"));
}

TEST_F(ReceiptsTest, HandOverOnceTheLeaseIsConfirmed) {
  Add({"a", "b"});
  EXPECT_THAT(held_, IsEmpty());
  EXPECT_THAT(rpc_.Get(0).ids, ElementsAre("a", "b"));
  EXPECT_EQ(rpc_.Get(0).seconds, 60);
  rpc_.Answer(0);
  EXPECT_THAT(held_, ElementsAre("a", "b"));
}

TEST_F(ReceiptsTest, WhatTheServerRefusesIsNotHandedOver) {
  Add({"a", "b", "c"});
  rpc_.Answer(0, absl::InvalidArgumentError("some"),
              {{"b", "PERMANENT_FAILURE_INVALID_ACK_ID"}, {"c", "TRANSIENT_FAILURE_X"}});
  EXPECT_THAT(held_, ElementsAre("a", "c"));
  EXPECT_THAT(refused_, ElementsAre("b"));
}

TEST_F(ReceiptsTest, KeepTheOrderWhateverTheOrderOfTheAnswers) {
  Add({"a"});
  Add({"b"});
  Add({"c"}, false);  // the subscription has changed meanwhile
  rpc_.Answer(1);
  EXPECT_THAT(held_, IsEmpty());
  rpc_.Answer(0);
  EXPECT_THAT(held_, ElementsAre("a", "b", "c"));
}

TEST_F(ReceiptsTest, AFaultThatMayPassHoldsNothingBack) {
  Add({"a"});
  rpc_.Answer(0, absl::UnavailableError("later"));
  EXPECT_THAT(held_, ElementsAre("a"));
}

TEST_F(ReceiptsTest, StayWithinTheRequestLimit) {
  const std::string id(200'000, 'x');
  Add({id + "1", id + "2", id + "3"});
  ASSERT_EQ(rpc_.count(), 2u);
  rpc_.Answer(0);
  EXPECT_THAT(held_, IsEmpty());
  rpc_.Answer(1);
  EXPECT_THAT(held_, ElementsAre(id + "1", id + "2", id + "3"));
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
