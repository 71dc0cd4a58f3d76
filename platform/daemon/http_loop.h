#pragma once

#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/daemon/http_server.h"

struct pollfd;

namespace lockstep {

// The connections of an HttpServer, all on one thread: Run polls them until it is woken to stop.
class HttpServer::Loop {
 public:
  // Makes the whole answer to a request's head (with the empty line).
  using Respond = std::function<std::string(const std::string& head)>;

  // Listens; the status says why it can't.
  static absl::StatusOr<std::unique_ptr<Loop>> Open(const HttpOptions& options, Respond respond);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int port() const;
  void Run(const std::stop_token& stop);
  void Wake();  // Run looks at its stop token; from any thread

 private:
  struct Connection {
    enum Stage { kReads, kWrites, kEnds };

    int fd = -1;
    std::string peer;
    SteadyTime until;  // when it is cut off
    Stage stage = kReads;
    std::string text;  // what came of the request, then what is left of the answer
  };
  using Connections = std::list<Connection>;  // the oldest first

  Loop(HttpOptions options, Respond respond)
      : options_(std::move(options)), respond_(std::move(respond)) {}

  std::vector<pollfd> WhatToWaitFor(SteadyTime now) const;
  Millis UntilSomethingIsDue(SteadyTime now) const;
  void Accept(SteadyTime now);
  void MakeRoomFor(const std::string& peer);
  void DropUntaken();
  // What can be done without waiting; false when the connection is over.
  bool Advance(Connection& connection, SteadyTime now);
  bool Read(Connection& connection, SteadyTime now);
  bool Write(Connection& connection, SteadyTime now);
  Connections::iterator Drop(Connections::iterator connection);

  const HttpOptions options_;
  const Respond respond_;
  int listener_ = -1;
  int wake_ = -1;
  SteadyTime accept_after_;  // file descriptors had run out
  Connections connections_;
};

}  // namespace lockstep
