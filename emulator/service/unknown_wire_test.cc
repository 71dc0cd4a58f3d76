// What a client of a newer API may ask for: refused, never accepted and ignored.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>

#include "emulator/testing/wire_fixture.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using UnknownWire = WireTest;

TEST_F(UnknownWire, AFieldOfANewerApiIsUnimplementedInEveryRequestAtAnyDepth) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  constexpr char kNewer[] = "\xba\x3e\x01x";  // field 999: "x"
  const grpc::Status nested = CreateSubscription([&](auto* s) {
    s->set_name("projects/test/subscriptions/another");
    s->mutable_retry_policy()->MergeFromString(kNewer);
  });
  EXPECT_EQ(nested.error_code(), StatusCode::UNIMPLEMENTED);

  pb::PublishRequest in_request;
  in_request.set_topic(kTopic);
  in_request.add_messages()->set_data("x");
  pb::PublishRequest in_message = in_request;
  in_request.MergeFromString(kNewer);
  in_message.mutable_messages(0)->MergeFromString(kNewer);
  EXPECT_EQ(TryPublish(in_request).error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(TryPublish(in_message).error_code(), StatusCode::UNIMPLEMENTED);

  pb::ListTopicsRequest list;
  list.set_project("projects/test");
  list.MergeFromString(kNewer);
  pb::ListTopicsResponse listed;
  EXPECT_EQ(Call(publisher_.get(), &pb::Publisher::Stub::ListTopics, list, &listed).error_code(),
            StatusCode::UNIMPLEMENTED);
  pb::SeekRequest seek;
  seek.set_subscription(kSubscription);
  seek.mutable_time()->set_seconds(1);
  seek.MergeFromString(kNewer);
  pb::SeekResponse seek_response;
  EXPECT_EQ(Call(subscriber_.get(), &pb::Subscriber::Stub::Seek, seek, &seek_response).error_code(),
            StatusCode::UNIMPLEMENTED);
  pb::PullRequest pull;
  pull.set_subscription(kSubscription);
  pull.set_max_messages(1);
  pull.MergeFromString(kNewer);
  pb::PullResponse pulled;
  EXPECT_EQ(Call(subscriber_.get(), &pb::Subscriber::Stub::Pull, pull, &pulled).error_code(),
            StatusCode::UNIMPLEMENTED);
  auto stream = Open(kSubscription, [&](auto* first) { first->MergeFromString(kNewer); });
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNIMPLEMENTED);
}

TEST_F(UnknownWire, CallsThatItDoesNotKnowAreUnimplemented) {
  grpc::GenericStub stub(channel_);
  for (const char* method :
       {"/google.iam.v1.IAMPolicy/GetIamPolicy", "/google.pubsub.v1.Publisher/Broadcast"}) {
    grpc::ClientContext context;
    const grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> answer;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&](grpc::Status status) { answer.set_value(std::move(status)); });
    EXPECT_EQ(answer.get_future().get().error_code(), StatusCode::UNIMPLEMENTED) << method;
  }
}

}  // namespace
}  // namespace lockstep::emulator
