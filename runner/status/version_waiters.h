#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "platform/daemon/http_server.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "postgres/connection.h"
#include "state/events/key_states.h"

namespace lockstep::runner {

// GET /api/await: answers when a group has reached a version of an aggregate, or when the time that
// the asker has is over. One thread with one session looks for all who wait, in one statement, and
// only while somebody does; how many may wait at a time is the endpoint's to say.
class VersionWaiters final : public Service {
 public:
  struct Options {
    std::string database;
    std::string state_schema;
    std::vector<std::string> groups;  // of this runner; others are not found
    Millis look_every{10};
  };
  // REQUIRES: `http` is not started yet, and is stopped before this object is destroyed.
  VersionWaiters(Options options, HttpServer& http);
  ~VersionWaiters() override { Stop(); }

  absl::Status Start() override;
  void Stop() override;  // who waits is told to ask another runner

 private:
  struct Waiter {
    HttpReply reply;
    state::KeyStates::Question question;
    int64_t version = 0;
    SteadyTime until;
  };

  void Enter(const HttpRequest& request, const HttpReply& reply);
  void Run();
  // Answers those that can be answered; the rest stays.
  void Look(std::vector<Waiter>& waiters);
  // After an error that values bring about: whose they are is told, the others go on.
  void LookOneByOne(std::vector<Waiter>& waiters, const absl::Status& error);
  absl::StatusOr<postgres::Result> Read(const std::vector<Waiter>& waiters);

  const Options options_;
  const state::KeyStates keys_;
  std::unique_ptr<postgres::Connection> session_;  // the thread's

  std::mutex mu_;
  std::condition_variable_any came_;
  std::vector<Waiter> entered_;
  bool stopped_ = false;

  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::runner
