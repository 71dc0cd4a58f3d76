#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/channel/keepalive.h"
#include "pubsub/grpc/receive/pull_stream.h"

namespace lockstep::pubsub::grpc_client {

// Keeps one stream open: whatever ends it (Pub/Sub does so as routine), it is opened again, after a
// backoff that grows while nothing comes of it. A stream whose server has fallen silent (Keepalive)
// is ended. Safe from any thread; HalfClose and AwaitEnd end it.
class StreamKeeper {
 public:
  struct Events {
    std::function<void(PullStream::Response&)> on_response;
    std::function<bool(std::function<void()>)> may_read;
    std::function<void(const absl::Status&)> on_state;  // OK = there is a stream
  };

  // `request`: what opens each stream; its client_id is a prefix. `keepalive`: see ReceiverOptions.
  StreamKeeper(std::shared_ptr<Client> client, size_t channel, PullStream::Request request,
               Millis keepalive, Events events);
  ~StreamKeeper();

  void Start() { Open(); }
  void HalfClose();  // no new stream from here on
  // REQUIRES: HalfClose was called. Waits for the end; a server that does not end the stream soon
  // is hung up on.
  void AwaitEnd();

 private:
  // Of the present stream, in this order; kDown again after kEnding.
  enum class State {
    kDown,     // there is none
    kOpening,  // nothing was heard of it
    kHeaders,  // they came, which they do ahead of a refusal too
    kUp,       // OK was told
    kEnding,   // its end is being told
  };

  // The one place where the state changes. False when it has got further already, or when it would
  // begin or go on although we stop. REQUIRES: mu_ is held.
  bool Become(State next);
  void Open();
  std::shared_ptr<PullStream> stream();
  void OnHeaders();
  void OnSilence();
  void OnOpen();
  bool MayRead(std::function<void()> resume);
  void Ping();
  void HangUp();
  void OnResponse(PullStream::Response& response);
  void OnEnd(const grpc::Status& status);

  const std::shared_ptr<Client> client_;
  const std::shared_ptr<grpc::Channel> channel_;
  PullStream::Stub stub_;
  const PullStream::Request request_;
  const Events events_;
  Keepalive keepalive_;

  std::mutex mu_;
  std::condition_variable ended_;
  std::shared_ptr<PullStream> stream_;  // shared with gRPC, see PullStream
  int ends_ = 0;                        // of streams, so far
  Backoff backoff_;
  SteadyTime opened_;
  Timer reopen_;
  Timer silence_;
  State state_ = State::kDown;
  bool stopping_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
