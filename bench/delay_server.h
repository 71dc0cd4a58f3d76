#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace lockstep::bench {

// An HTTP server in a process of its own, on 127.0.0.1: every POST is answered with 200 after
// `delay`. One thread over epoll, so that it is no bottleneck. Ends with this object. REQUIRES:
// made before the program has threads.
class DelayServer {
 public:
  explicit DelayServer(std::chrono::microseconds delay);
  ~DelayServer();
  DelayServer(const DelayServer&) = delete;
  DelayServer& operator=(const DelayServer&) = delete;

  std::string url() const;

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace lockstep::bench
