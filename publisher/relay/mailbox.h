#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "platform/clock.h"
#include "publisher/dispatch/dispatcher.h"

namespace lockstep::publisher {

// Brings answers of the bus to the relay's thread, and wakes it. Post and Wake are safe from any
// thread; it is shared because an answer may come after its relay has gone.
class Mailbox {
 public:
  struct Answer {
    int64_t request = 0;
    std::vector<DispatchResult> results;
  };

  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Post(Answer answer);
  void Wake();

  std::vector<Answer> Take();

  // Waits for a Post, a Wake, or bytes on `socket` (-1 = none). False when the time has passed.
  bool Wait(int socket, Millis timeout);

 private:
  int event_ = -1;
  std::mutex mu_;
  std::vector<Answer> answers_;
};

}  // namespace lockstep::publisher
