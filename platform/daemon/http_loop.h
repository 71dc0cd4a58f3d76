#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/daemon/http_server.h"

struct pollfd;

namespace lockstep {

// Ends a poll. From any thread.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int fd() const { return fd_; }  // -1 with errno when there is none to be had
  void Wake() const;
  void Drain() const;

 private:
  const int fd_;
};

struct HttpReply::State {
  std::shared_ptr<const Waker> waker;
  std::string peer;
  bool with_body = true;

  std::mutex mu;
  bool gone = false;                // the connection is
  std::optional<std::string> text;  // the whole answer
};

// The connections of an HttpServer, all on one thread: Run polls them until it is woken to stop.
class HttpServer::Loop {
 public:
  // Makes the whole answer to a request's head (with the empty line); nothing when it is given
  // through `reply`.
  using Respond = std::function<std::optional<std::string>(
      const std::string& head, const std::shared_ptr<HttpReply::State>& reply)>;

  // Listens; the status says why it can't.
  static absl::StatusOr<std::unique_ptr<Loop>> Open(const HttpOptions& options, Respond respond);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int port() const;
  void Run(const std::stop_token& stop);
  void Wake() { waker_->Wake(); }  // Run looks at its stop token; from any thread
  // Those that wait for later answers, all or of one address. On Run's thread.
  size_t waiting() const;
  size_t waiting(const std::string& peer) const;

 private:
  struct Connection {
    enum Stage { kReads, kWaits, kWrites, kEnds };

    int fd = -1;
    std::string peer;
    SteadyTime until;  // when it is cut off
    Stage stage = kReads;
    std::string text;  // what came of the request, then what is left of the answer
    std::shared_ptr<HttpReply::State> reply;  // while it waits
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
  bool TakeReply(Connection& connection, SteadyTime now);  // false = it is not there yet
  bool Write(Connection& connection, SteadyTime now);
  Connections::iterator Drop(Connections::iterator connection);

  const HttpOptions options_;
  const Respond respond_;
  int listener_ = -1;
  const std::shared_ptr<const Waker> waker_ = std::make_shared<Waker>();
  SteadyTime accept_after_;  // file descriptors had run out
  Connections connections_;
};

}  // namespace lockstep
