#pragma once

#include <functional>
#include <mutex>

#include "platform/clock.h"
#include "pubsub/grpc/channel/timers.h"

namespace lockstep::pubsub::grpc_client {

// Watches one stream after the other for a server that has fallen silent: pings it so often, and
// hangs up when a ping is not answered within half of that. Only a server that has answered one
// ping of this stream is held to the next: emulators and older servers know no pings. Works on the
// timers' thread; safe from any thread. End, or the destructor, ends it.
class Keepalive {
 public:
  // `every` 0 = it does nothing.
  Keepalive(Millis every, Timers& timers);
  ~Keepalive();

  void Begin(std::function<void()> ping, std::function<void()> hang_up);
  void OnResponse(bool with_messages);
  // While the stream is not read, silence means nothing.
  void Pause();
  void Resume();
  void End();

 private:
  void OnPingTime();
  void OnJudgement();

  const Millis every_;
  Timers& timers_;

  std::mutex mu_;
  std::function<void()> ping_;
  std::function<void()> hang_up_;
  Timers::Id timer_ = 0;
  Timers::Id fired_ = 0;  // the one before: its function may still be at work
  bool watching_ = false;
  bool paused_ = false;
  bool awaiting_ = false;  // an answer
  bool answers_ = false;   // it has answered a ping
};

}  // namespace lockstep::pubsub::grpc_client
