#include "pubsub/grpc/receive/pull_stream.h"

#include <utility>

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr char kMethod[] = "/google.pubsub.v1.Subscriber/StreamingPull";

}  // namespace

PullStream::PullStream(Request request, Events events)
    : request_(std::move(request)), events_(std::move(events)) {}

std::shared_ptr<PullStream> PullStream::Open(Stub& stub, Request request, Events events) {
  std::shared_ptr<PullStream> stream(new PullStream(std::move(request), std::move(events)));
  stream->self_ = stream;
  stub.PrepareBidiStreamingCall(&stream->context_, kMethod, grpc::StubOptions(), stream.get());
  // Reads resume and half-closes come from outside of gRPC's reactions: a hold keeps OnDone away
  // until the last read has failed.
  stream->AddHold();
  stream->StartWrite(&stream->request_);
  stream->StartRead(&stream->response_);
  stream->StartCall();
  return stream;
}

void PullStream::Ping() {
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

void PullStream::HalfClose() {
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

void PullStream::OnReadInitialMetadataDone(bool ok) {
  if (ok) events_.on_headers();
}

void PullStream::OnWriteDone(bool ok) {
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

void PullStream::OnReadDone(bool ok) {
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

void PullStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<PullStream> self = std::move(self_);
  const grpc::Status malformed(grpc::StatusCode::INTERNAL,
                               "a response of StreamingPull is not well formed");
  events_.on_end(response_.malformed ? malformed : status);
}

}  // namespace lockstep::pubsub::grpc_client
