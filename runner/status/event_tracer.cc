#include "runner/status/event_tracer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "platform/log/masking.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"
#include "state/groups/epochs.h"
#include "web/document.h"

namespace lockstep::runner {
namespace {

using nlohmann::ordered_json;

// Parked events and dead letters have no index by event: where there are very many, it is given up.
constexpr Millis kTraceTimeout{2'000};

ordered_json TimeOr(const std::optional<WallTime>& time) {
  return web::TimeOrNull(time.value_or(WallTime()));
}

template <class Value>
ordered_json ValueOrNull(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json TextOr(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

HttpResponse Say(int status, std::string_view sentence) {
  return {.status = status, .body = std::string(sentence) + "\n"};
}

}  // namespace

ordered_json TraceJson(const std::string& group, const state::TracedEvent& traced) {
  return {{"group", group},
          {"fate", TextOr(traced.fate)},
          {"verdict", traced.verdict},
          {"reason", TextOr(traced.reason)},
          {"received_at", TimeOr(traced.received_at)},
          {"settled_version", ValueOrNull(traced.settled_version)},
          {"parked_at", TimeOr(traced.parked_at)},
          {"dead_letter", ValueOrNull(traced.dead_letter)},
          {"dead_at", TimeOr(traced.dead_at)},
          {"resolved_at", TimeOr(traced.resolved_at)}};
}

EventTracer::EventTracer(Options options, HttpServer& http)
    : options_(std::move(options)), schema_(options_.state_schema) {
  http.HandleLater("/api/trace", [this](const HttpRequest& request, const HttpReply& reply) {
    Enter(request, reply);
  });
}

absl::Status EventTracer::Start() {
  return thread_.Start([this] { Run(); });
}

void EventTracer::Stop() {
  thread_.Stop();
  std::deque<Question> left;
  {
    const std::scoped_lock lock(mu_);
    stopped_ = true;
    left.swap(entered_);
  }
  for (const Question& question : left) {
    question.reply.Send(Say(503, "this runner ends; ask another one"));
  }
}

void EventTracer::Enter(const HttpRequest& request, const HttpReply& reply) {
  const auto value = [&](const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::string() : found->second;
  };
  Question question{.reply = reply,
                    .event = {.event_id = value("event"),
                              .aggregate_key = {},
                              .version = {},
                              .message_id = value("message")}};
  const std::string& message = question.event.message_id;
  if (question.event.event_id.empty() == message.empty()) {
    return reply.Send(Say(400, "ask for /api/trace?event=… or ?message=…"));
  }
  if (!ValidUtf8(message) || message.find('\0') != std::string::npos) {
    return reply.Send(Say(400, "'message' must be UTF-8 without NUL"));
  }
  {
    const std::scoped_lock lock(mu_);
    if (!stopped_) {
      entered_.push_back(std::move(question));
      came_.notify_one();
      return;
    }
  }
  reply.Send(Say(503, "this runner ends; ask another one"));
}

void EventTracer::Run() {
  const std::stop_token stop = thread_.stop_token();
  while (true) {
    std::optional<Question> question;
    {
      std::unique_lock lock(mu_);
      if (!came_.wait(lock, stop, [&] { return !entered_.empty(); })) return;
      if (stop.stop_requested()) return;
      question.emplace(std::move(entered_.front()));
      entered_.pop_front();
    }
    if (!question->reply.Gone()) question->reply.Send(Answer(question->event));
  }
}

HttpResponse EventTracer::Answer(const state::EventFates::Event& event) {
  auto traced = Trace(event);
  if (absl::IsInvalidArgument(traced.status())) return Say(400, MessageOf(traced.status()));
  if (!traced.ok()) return Say(503, "the database could not be asked");
  nlohmann::json answer = *std::move(traced);
  if (KeysAreMasked()) web::Mask(answer);
  return {.content_type = "application/json; charset=utf-8",
          .body = answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

absl::StatusOr<ordered_json> EventTracer::Trace(state::EventFates::Event event) {
  if (!session_ || session_->broken()) {
    session_.reset();
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open({.url = options_.database,
                                                 .application_name = "lockstep-runner trace",
                                                 .connect_timeout = kTraceTimeout,
                                                 .statement_timeout = kTraceTimeout}));
  }
  ordered_json groups = ordered_json::array();
  for (const std::string& name : options_.groups) {
    const ConsumerGroup group(name);
    const auto epoch = state::Epochs(schema_, group).Load(*session_);
    if (absl::IsNotFound(epoch.status())) continue;  // it has never started
    RETURN_IF_ERROR(epoch.status());
    ASSIGN_OR_RETURN(const state::TracedEvent traced,
                     state::EventFates(schema_, group).Trace(*session_, epoch->generation, event));
    event = traced.event;
    groups.push_back(TraceJson(name, traced));
  }
  return ordered_json{{"event_id", TextOr(event.event_id)},
                      {"aggregate", TextOr(event.aggregate_key)},
                      {"version", ValueOrNull(event.version)},
                      {"message_id", TextOr(event.message_id)},
                      {"groups", groups}};
}

}  // namespace lockstep::runner
