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
constexpr int kMostOfKey = 50;  // keys, parked events, dead letters

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
          {"published_at", TimeOr(traced.published)},
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
                              .message_id = value("message")},
                    .key = value("key")};
  int asked = 0;
  for (const std::string* text :
       {&question.event.event_id, &question.event.message_id, &question.key}) {
    asked += text->empty() ? 0 : 1;
    if (!ValidUtf8(*text) || text->find('\0') != std::string::npos) {
      return reply.Send(Say(400, "what is asked for must be UTF-8 without NUL"));
    }
  }
  if (asked != 1) {
    return reply.Send(Say(400, "ask for /api/trace?event=…, ?message=… or ?key=…"));
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
    if (!question->reply.Gone()) question->reply.Send(Answer(*question));
  }
}

HttpResponse EventTracer::Answer(const Question& question) {
  auto traced = question.key.empty() ? Trace(question.event) : TraceKey(question.key);
  if (absl::IsInvalidArgument(traced.status())) return Say(400, MessageOf(traced.status()));
  if (!traced.ok()) return Say(503, "the database could not be asked");
  nlohmann::json answer = *std::move(traced);
  if (KeysAreMasked()) web::Mask(answer);
  return {.content_type = "application/json; charset=utf-8",
          .body = answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

absl::Status EventTracer::Connect() {
  if (session_ && !session_->broken()) return absl::OkStatus();
  session_.reset();
  ASSIGN_OR_RETURN(session_,
                   postgres::Connection::Open({.url = options_.database,
                                               .application_name = "lockstep-runner trace",
                                               .connect_timeout = kTraceTimeout,
                                               .statement_timeout = kTraceTimeout}));
  return absl::OkStatus();
}

absl::StatusOr<ordered_json> EventTracer::OfGroups(const Ask& ask) {
  RETURN_IF_ERROR(Connect());
  ordered_json groups = ordered_json::array();
  for (const std::string& name : options_.groups) {
    const ConsumerGroup group(name);
    const auto epoch = state::Epochs(schema_, group).Load(*session_);
    if (absl::IsNotFound(epoch.status())) continue;  // it has never started
    RETURN_IF_ERROR(epoch.status());
    ASSIGN_OR_RETURN(ordered_json told, ask(group, epoch->generation));
    groups.push_back(std::move(told));
  }
  return groups;
}

absl::StatusOr<ordered_json> EventTracer::Trace(state::EventFates::Event event) {
  ASSIGN_OR_RETURN(
      const ordered_json groups,
      OfGroups([&](const ConsumerGroup& group, int generation) -> absl::StatusOr<ordered_json> {
        ASSIGN_OR_RETURN(const state::TracedEvent traced,
                         state::EventFates(schema_, group).Trace(*session_, generation, event));
        event = traced.event;  // each group may know more of it
        return TraceJson(group.value(), traced);
      }));
  return ordered_json{{"event_id", TextOr(event.event_id)},
                      {"aggregate", TextOr(event.aggregate_key)},
                      {"version", ValueOrNull(event.version)},
                      {"message_id", TextOr(event.message_id)},
                      {"groups", groups}};
}

absl::StatusOr<ordered_json> EventTracer::TraceKey(const std::string& key) {
  const auto of_group = [&](const ConsumerGroup& group,
                            int generation) -> absl::StatusOr<ordered_json> {
    ASSIGN_OR_RETURN(
        const auto found,
        state::EventFates(schema_, group).TraceKey(*session_, generation, key, kMostOfKey));
    ordered_json told = {{"group", group.value()},
                         {"keys", ordered_json::array()},
                         {"parked", ordered_json::array()},
                         {"dead", ordered_json::array()}};
    for (const postgres::Row row : found.keys) {
      told["keys"].push_back(
          {{"aggregate", row.Text("aggregate_key")},
           {"settled_version", ValueOrNull(row.OptionalInt("settled_version"))},
           {"snapshot_version", ValueOrNull(row.OptionalInt("snapshot_version"))},
           {"updated_at", TimeOr(row.OptionalTime("updated_at"))}});
    }
    const auto event = [](const postgres::Row& row) {
      return ordered_json{{"event_id", ValueOrNull(row.OptionalText("event_id"))},
                          {"version", ValueOrNull(row.OptionalInt("version"))},
                          {"event_type", ValueOrNull(row.OptionalText("event_type"))},
                          {"aggregate", ValueOrNull(row.OptionalText("aggregate_key"))},
                          {"reason", row.Text("reason")}};
    };
    for (const postgres::Row row : found.parked) {
      ordered_json& one = told["parked"].emplace_back(event(row));
      one["parked_at"] = TimeOr(row.OptionalTime("parked_at"));
    }
    for (const postgres::Row row : found.dead) {
      ordered_json& one = told["dead"].emplace_back(event(row));
      one["id"] = row.Int("id");
      one["state"] = row.Text("state");
      one["code"] = row.Text("code");
      one["dead_at"] = TimeOr(row.OptionalTime("dead_at"));
      one["resolved_at"] = TimeOr(row.OptionalTime("resolved_at"));
    }
    return told;
  };
  ASSIGN_OR_RETURN(const ordered_json groups, OfGroups(of_group));
  return ordered_json{{"key", key}, {"groups", groups}};
}

}  // namespace lockstep::runner
