#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/grpc/codec/message_codec.h"

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

  static std::shared_ptr<PullStream> Open(Stub& stub, Request request, Events events) {
    std::shared_ptr<PullStream> stream(new PullStream(std::move(request), std::move(events)));
    stream->self_ = stream;
    stub.PrepareBidiStreamingCall(&stream->context_, "/google.pubsub.v1.Subscriber/StreamingPull",
                                  grpc::StubOptions(), stream.get());
    // Reads resume and half-closes come from outside of gRPC's reactions: a hold keeps OnDone away
    // until the last read has failed.
    stream->AddHold();
    stream->StartWrite(&stream->request_);
    stream->StartRead(&stream->response_);
    stream->StartCall();
    return stream;
  }

  // Asks the server for a sign of life: it answers with a response without messages.
  void Ping() {
    {
      std::scoped_lock lock(mu_);
      if (writing_ || half_close_ || ended_) return;
      writing_ = true;
      AddHold();  // the stream must not end between here and StartWrite
    }
    request_.Clear();
    StartWrite(&request_);
    RemoveHold();
  }

  // Asks the server to end the stream; it is read to its end.
  void HalfClose() {
    {
      std::scoped_lock lock(mu_);
      if (half_close_) return;
      half_close_ = true;
      if (writing_ || ended_) return;  // OnWriteDone does it
      AddHold();
    }
    StartWritesDone();
    RemoveHold();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) events_.on_headers();
  }

  void OnWriteDone(bool ok) override {
    {
      std::scoped_lock lock(mu_);
      if (!ok) return;  // the stream is broken, and so is its read
      writing_ = false;
      if (!half_close_ || ended_) return;
      AddHold();
    }
    StartWritesDone();
    RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        std::scoped_lock lock(mu_);
        ended_ = true;
      }
      // Its read has failed, but for gRPC the call goes on.
      if (response_.malformed) Cancel();
      RemoveHold();
      return;
    }
    events_.on_response(response_);
    if (events_.may_read([this] { StartRead(&response_); })) StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<PullStream> self = std::move(self_);
    const grpc::Status malformed(grpc::StatusCode::INTERNAL,
                                 "a response of StreamingPull is not well formed");
    events_.on_end(response_.malformed ? malformed : status);
  }

 private:
  PullStream(Request request, Events events)
      : request_(std::move(request)), events_(std::move(events)) {}

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
