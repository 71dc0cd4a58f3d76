#include "pubsub/grpc/codec/message_codec.h"

#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/grpc/codec/resource_codec.h"

namespace lockstep::pubsub::grpc_client {
namespace {

TEST(MessageCodec, WritesWhatProtobufReads) {
  std::vector<Message> messages(3);
  messages[0].data = std::string(70'000, 'x');
  messages[0].attributes = {{"a", "1"}, {"empty", ""}, {"long", std::string(1'000, 'v')}};
  messages[0].ordering_key = std::string(300, 'k');
  messages[1].attributes = {{"only", "attributes"}};
  messages[2].data = std::string("\0\xFF binary", 9);
  const grpc::ByteBuffer buffer = EncodePublishRequest("projects/p/topics/t", messages);
  grpc::Slice slice;
  ASSERT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
  google::pubsub::v1::PublishRequest request;
  ASSERT_TRUE(request.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
  EXPECT_EQ(request.topic(), "projects/p/topics/t");
  ASSERT_EQ(request.messages_size(), 3);
  for (int i = 0; i < 3; ++i) {
    const auto& proto = request.messages(i);
    const Message& message = messages[static_cast<size_t>(i)];
    EXPECT_EQ(proto.data(), message.data);
    EXPECT_EQ(proto.ordering_key(), message.ordering_key);
    Attributes attributes;
    for (const auto& [name, value] : proto.attributes()) attributes[name] = value;
    EXPECT_EQ(attributes, message.attributes);
  }
  // Nothing more, nothing less: as long as protobuf would make it.
  EXPECT_EQ(request.ByteSizeLong(), slice.size());
}

TEST(PullCodec, ReadsWhatProtobufWrites) {
  google::pubsub::v1::StreamingPullResponse response;
  response.mutable_subscription_properties()->set_exactly_once_delivery_enabled(true);
  response.mutable_acknowledge_confirmation()->add_ack_ids("not for us");
  auto* full = response.add_received_messages();
  full->set_ack_id(std::string(200, 'a'));
  full->set_delivery_attempt(7);
  full->mutable_message()->set_data(std::string("\0\xFF binary", 9));
  full->mutable_message()->set_message_id("m1");
  full->mutable_message()->set_ordering_key(std::string(300, 'k'));
  full->mutable_message()->mutable_publish_time()->set_seconds(1'700'000'000);
  full->mutable_message()->mutable_publish_time()->set_nanos(123'456'789);
  for (const char* name : {"z", "a", "m", ""}) {
    (*full->mutable_message()->mutable_attributes())[name] = std::string(name) + " value";
  }
  response.add_received_messages();
  const std::string wire = response.SerializeAsString();
  PulledMessages pulled;
  ASSERT_TRUE(DecodePulled(wire, &pulled));
  EXPECT_EQ(pulled.exactly_once, true);
  ASSERT_EQ(pulled.deliveries.size(), 2u);
  const Delivery& delivery = pulled.deliveries[0];
  EXPECT_EQ(delivery.token, AckToken(std::string(200, 'a')));
  EXPECT_EQ(delivery.delivery_attempt, 7);
  EXPECT_EQ(delivery.message.data, std::string("\0\xFF binary", 9));
  EXPECT_EQ(delivery.message_id, MessageId("m1"));
  EXPECT_EQ(delivery.message.ordering_key, std::string(300, 'k'));
  EXPECT_EQ(delivery.publish_time, FromProto(full->message().publish_time()));
  EXPECT_EQ(delivery.message.attributes,
            (Attributes{{"", " value"}, {"a", "a value"}, {"m", "m value"}, {"z", "z value"}}));
  // Cut anywhere, it is refused or shorter, and never read past its end.
  for (size_t size = 0; size < wire.size(); ++size) {
    PulledMessages part;
    DecodePulled(std::string(wire.data(), size), &part);
    EXPECT_LE(part.deliveries.size(), 2u);
  }
  PulledMessages bad;
  EXPECT_FALSE(DecodePulled("\x0a\x7f", &bad));
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
