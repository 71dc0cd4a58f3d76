#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "platform/daemon/http_server.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "postgres/connection.h"
#include "state/events/event_fates.h"

namespace lockstep::runner {

// What a group knows of an event, as lockstepctl and /api/trace tell it.
nlohmann::ordered_json TraceJson(const std::string& group, const state::TracedEvent& traced);

// GET /api/trace: what became of one event, or of a key's events, in the groups of this runner. One
// thread with one session asks the database, one question after the other; how many may wait is the
// endpoint's to say.
class EventTracer final : public Service {
 public:
  struct Options {
    std::string database;
    std::string state_schema;
    std::vector<std::string> groups;  // of this runner
  };
  // REQUIRES: `http` is not started yet, and is stopped before this object is destroyed.
  EventTracer(Options options, HttpServer& http);
  ~EventTracer() override { Stop(); }

  absl::Status Start() override;
  void Stop() override;  // who waits is told to ask another runner

 private:
  struct Question {
    HttpReply reply;
    state::EventFates::Event event;
    std::string key;  // asked for in place of an event
  };

  void Enter(const HttpRequest& request, const HttpReply& reply);
  void Run();
  HttpResponse Answer(const Question& question);
  absl::Status Connect();
  // Asks of each group that has ever started, with its generation.
  using Ask = std::function<absl::StatusOr<nlohmann::ordered_json>(const ConsumerGroup& group,
                                                                   int generation)>;
  absl::StatusOr<nlohmann::ordered_json> OfGroups(const Ask& ask);
  absl::StatusOr<nlohmann::ordered_json> Trace(state::EventFates::Event event);
  absl::StatusOr<nlohmann::ordered_json> TraceKey(const std::string& key);

  const Options options_;
  const state::Schema schema_;
  std::unique_ptr<postgres::Connection> session_;  // the thread's

  std::mutex mu_;
  std::condition_variable_any came_;
  std::deque<Question> entered_;
  bool stopped_ = false;

  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::runner
