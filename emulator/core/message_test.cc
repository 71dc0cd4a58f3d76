#include "emulator/core/message.h"

#include <gtest/gtest.h>

#include "emulator/core/ack_id.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {
namespace {

TEST(Message, IsSerializedWithTheIdAndTimeThatTheServerGives) {
  google::pubsub::v1::PubsubMessage sent;
  sent.set_data("data");
  sent.set_ordering_key("key");
  sent.set_message_id("the client's");
  sent.mutable_publish_time()->set_seconds(1);
  (*sent.mutable_attributes())["a"] = "1";
  const auto message = MakeMessage(sent);
  const WallTime time =
      WallTime(std::chrono::seconds(1'700'000'000)) + std::chrono::microseconds(123'456);
  Stamp(7, 9'876'543'210, time, message.get());

  google::pubsub::v1::PubsubMessage parsed;
  ASSERT_TRUE(parsed.ParseFromString(message->wire));
  EXPECT_EQ(parsed.data(), "data");
  EXPECT_EQ(parsed.ordering_key(), "key");
  EXPECT_EQ(parsed.attributes().at("a"), "1");
  EXPECT_EQ(parsed.message_id(), "9876543210");
  EXPECT_EQ(parsed.publish_time().seconds(), 1'700'000'000);
  EXPECT_EQ(parsed.publish_time().nanos(), 123'456'000);
  EXPECT_EQ(message->sequence, 7U);
}

TEST(AckId, SurvivesTheRoundTrip) {
  const AckId id{3, 0x123456789abcdef0, 42, 1};
  const auto parsed = AckId::Parse(id.Text());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->subscription, 3U);
  EXPECT_EQ(parsed->sequence, 0x123456789abcdef0U);
  EXPECT_EQ(parsed->lease, 42U);
  EXPECT_EQ(parsed->copy, 1U);
}

TEST(AckId, IsNotMadeFromAnyText) {
  for (const std::string& text : {std::string(), std::string("nonsense"), std::string(48, 'g'),
                                  std::string(47, '0'), std::string(49, '0')}) {
    EXPECT_FALSE(AckId::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace lockstep::emulator
