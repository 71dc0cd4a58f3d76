#include "tests/support/lost_stream.h"

#include <grpcpp/grpcpp.h>

#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace lockstep::testing {

bool TakeAndBreakOff(const std::string& address, const std::string& subscription,
                     const std::string& client_id) {
  const auto stub = google::pubsub::v1::Subscriber::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->StreamingPull(&context);
  google::pubsub::v1::StreamingPullRequest request;
  request.set_subscription(subscription);
  request.set_stream_ack_deadline_seconds(60);
  request.set_client_id(client_id);
  google::pubsub::v1::StreamingPullResponse response;
  const bool got = stream->Write(request) && stream->Read(&response);
  context.TryCancel();
  stream->Finish();
  return got;
}

}  // namespace lockstep::testing
