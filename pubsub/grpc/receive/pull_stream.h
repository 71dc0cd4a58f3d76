#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <mutex>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/grpc/codec/pull_codec.h"

namespace lockstep::pubsub::grpc_client {

// One StreamingPull from its opening to its end. It carries reads only: acks and lease extensions
// are unary calls, which outlive a stream. Its events come on gRPC's threads, one at a time for
// responses. Keeps itself alive until its end has been told.
class PullStream
    : public grpc::ClientBidiReactor<google::pubsub::v1::StreamingPullRequest, PulledMessages> {
 public:
  using Request = google::pubsub::v1::StreamingPullRequest;
  using Response = PulledMessages;
  // The generated stub's method, with responses that are read our way.
  using Stub = grpc::TemplatedGenericStub<Request, Response>;

  struct Events {
    std::function<void()> on_headers;  // the server has answered, if only with a refusal
    std::function<void(Response&)> on_response;
    // Whether to read on; if not, the function is called when it may.
    std::function<bool(std::function<void()>)> may_read;
    std::function<void(const grpc::Status&)> on_end;  // the last event
  };

  static std::shared_ptr<PullStream> Open(Stub& stub, Request request, Events events);

  // Asks the server for a sign of life: it answers with a response without messages.
  void Ping();
  // Asks the server to end the stream; it is read to its end.
  void HalfClose();
  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  PullStream(Request request, Events events);

  grpc::ClientContext context_;
  Request request_;  // then, empty, of the pings
  Response response_;
  Events events_;
  std::shared_ptr<PullStream> self_;  // until OnDone: gRPC holds a bare pointer

  std::mutex mu_;
  bool writing_ = true;      // at most one write may be under way
  bool half_close_ = false;  // wanted
  bool ended_ = false;       // no operation may be started any more
};

}  // namespace lockstep::pubsub::grpc_client
