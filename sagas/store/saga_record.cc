#include "sagas/store/saga_record.h"

#include <algorithm>
#include <array>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/result.h"

namespace lockstep::sagas {
namespace {

constexpr std::array<std::string_view, 6> kSagaStates = {"Running", "Compensating", "Completed",
                                                         "Failed",  "Cancelled",    "Paused"};
constexpr std::array<std::string_view, 6> kStepStates = {"Ready",  "InFlight",    "Succeeded",
                                                         "Failed", "Compensated", "Skipped"};

template <typename State, size_t n>
std::optional<State> Parse(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<State>(found - names.begin());
}

Json OrNull(const std::optional<std::string>& text) { return text ? Json(*text) : Json(nullptr); }
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json OrNull(const std::optional<WallTime>& time) {
  return time ? Json(FormatTimestamp(*time)) : Json(nullptr);
}

WallTime FromMicros(int64_t micros) {
  return WallTime(
      std::chrono::duration_cast<WallTime::duration>(std::chrono::microseconds(micros)));
}
std::optional<WallTime> TimeAt(const Json& row, size_t index) {
  if (row.at(index).is_null()) return std::nullopt;
  return FromMicros(row.at(index).get<int64_t>());
}
std::string TextAt(const Json& row, size_t index) {
  return row.at(index).is_null() ? "" : row.at(index).get<std::string>();
}

// In the order of kSagaColumns.
StoredStep ReadStep(const Json& row) {
  StoredStep step;
  step.step = row.at(0).get<int>();
  step.name = row.at(1).get<std::string>();
  step.state = ParseStepState(TextAt(row, 2)).value_or(StepState::kReady);
  step.compensating = row.at(3).get<bool>();
  step.attempts = row.at(4).get<int>();
  step.compensation_attempts = row.at(5).get<int>();
  step.available_at = TimeAt(row, 6);
  step.deadline = TimeAt(row, 7);
  step.in_doubt = row.at(8).get<bool>();
  step.result = row.at(9);
  if (!row.at(10).is_null()) step.signal = Signal{TextAt(row, 10) == "succeeded", row.at(11)};
  step.last_error = TextAt(row, 12);
  step.error_code = TextAt(row, 13);
  step.started_at = TimeAt(row, 14);
  step.completed_at = TimeAt(row, 15);
  step.compensated_at = TimeAt(row, 16);
  step.maybe_done = row.at(17).get<bool>();
  return step;
}

Json ToJson(const StoredStep& step, bool payloads) {
  Json json = {{"name", step.name},
               {"state", Name(step.state)},
               {"compensating", step.compensating},
               {"in_doubt", step.in_doubt},
               {"attempts", step.attempts},
               {"compensation_attempts", step.compensation_attempts},
               {"available_at", OrNull(step.available_at)},
               {"deadline", OrNull(step.deadline)},
               {"signal", nullptr},
               {"error", OrNull(step.last_error)},
               {"error_code", OrNull(step.error_code)},
               {"started_at", OrNull(step.started_at)},
               {"completed_at", OrNull(step.completed_at)},
               {"compensated_at", OrNull(step.compensated_at)}};
  if (step.signal) json["signal"] = step.signal->succeeded ? "succeeded" : "failed";
  if (payloads) json["result"] = step.result;
  return json;
}

}  // namespace

const char kSagaColumns[] = R"sql(
s.id, s.definition, s.version, s.tenant, s.key, s.state, s.paused_from, s.pause_asked, s.cancel_asked, s.reason,
s.input, s.traceparent, s.tracestate, s.error, s.error_code, s.failed_step, s.deadline, s.created_at, s.updated_at,
s.ended_at, s.dead_at, s.quarantined_at, w.owner, nullif(w.run_at, 'infinity') AS run_at,
(SELECT json_agg(json_build_array(p.step, p.name, p.state, p.compensating, p.attempts, p.compensation_attempts,
          (extract(epoch FROM p.available_at) * 1000000)::bigint, (extract(epoch FROM p.deadline) * 1000000)::bigint,
          p.in_doubt, p.result, p.signal, p.signal_result, p.last_error, p.error_code,
          (extract(epoch FROM p.started_at) * 1000000)::bigint, (extract(epoch FROM p.completed_at) * 1000000)::bigint,
          (extract(epoch FROM p.compensated_at) * 1000000)::bigint, p.maybe_done) ORDER BY p.step)
 FROM lockstep.saga_steps p WHERE p.saga = s.id) AS steps)sql";

std::string_view Name(SagaState state) { return kSagaStates[static_cast<size_t>(state)]; }
std::string_view Name(StepState state) { return kStepStates[static_cast<size_t>(state)]; }
std::optional<SagaState> ParseSagaState(std::string_view name) {
  return Parse<SagaState>(kSagaStates, name);
}
std::optional<StepState> ParseStepState(std::string_view name) {
  return Parse<StepState>(kStepStates, name);
}

absl::StatusOr<StoredSaga> ReadSaga(const postgres::Row& row) {
  StoredSaga saga;
  saga.id = row.String("id");
  saga.definition = row.String("definition");
  saga.version = static_cast<int>(row.Int("version"));
  saga.tenant = row.OptionalText("tenant");
  saga.key = row.OptionalText("key");
  saga.state = ParseSagaState(row.Text("state")).value_or(SagaState::kRunning);
  saga.paused_from = ParseSagaState(row.Text("paused_from"));
  saga.pause_asked = row.Bool("pause_asked");
  saga.cancel_asked = row.Bool("cancel_asked");
  saga.reason = row.String("reason");
  saga.traceparent = row.OptionalText("traceparent");
  saga.tracestate = row.OptionalText("tracestate");
  saga.error = row.String("error");
  saga.error_code = row.String("error_code");
  if (const auto step = row.OptionalInt("failed_step")) saga.failed_step = static_cast<int>(*step);
  saga.deadline = row.OptionalTime("deadline");
  saga.created_at = row.Time("created_at");
  saga.updated_at = row.Time("updated_at");
  saga.ended_at = row.OptionalTime("ended_at");
  saga.dead_at = row.OptionalTime("dead_at");
  saga.quarantined_at = row.OptionalTime("quarantined_at");
  saga.owner = row.String("owner");
  saga.run_at = row.OptionalTime("run_at");
  try {
    saga.input = Json::parse(row.Text("input"));
    for (const Json& step : Json::parse(row.IsNull("steps") ? "[]" : row.Text("steps"))) {
      saga.steps.push_back(ReadStep(step));
    }
  } catch (const Json::exception& error) {
    return Internal("the saga {} can't be read: {}", saga.id, error.what());
  }
  return saga;
}

Json ContextOf(const StoredSaga& saga) {
  Json steps = Json::object();
  for (const StoredStep& step : saga.steps) steps[step.name] = step.result;
  return {{"input", saga.input},
          {"steps", std::move(steps)},
          {"saga",
           {{"id", saga.id},
            {"tenant", OrNull(saga.tenant)},
            {"key", OrNull(saga.key)},
            {"definition", saga.definition},
            {"version", saga.version}}}};
}

Json StoredSaga::ToJson(bool payloads) const {
  Json json = {{"id", id},
               {"definition", definition},
               {"version", version},
               {"tenant", OrNull(tenant)},
               {"key", OrNull(key)},
               {"state", Name(state)},
               {"paused_from", paused_from ? Json(Name(*paused_from)) : Json(nullptr)},
               {"reason", OrNull(reason)},
               {"cancel_asked", cancel_asked},
               {"error", OrNull(error)},
               {"error_code", OrNull(error_code)},
               {"failed_step", nullptr},
               {"deadline", OrNull(deadline)},
               {"created_at", FormatTimestamp(created_at)},
               {"updated_at", FormatTimestamp(updated_at)},
               {"ended_at", OrNull(ended_at)},
               {"dead_at", OrNull(dead_at)},
               {"quarantined_at", OrNull(quarantined_at)},
               {"owner", OrNull(owner)},
               {"run_at", OrNull(run_at)},
               {"steps", Json::array()}};
  if (failed_step && *failed_step >= 0 && static_cast<size_t>(*failed_step) < steps.size()) {
    json["failed_step"] = steps[static_cast<size_t>(*failed_step)].name;
  }
  if (payloads) json["input"] = input;
  for (const StoredStep& step : steps) json["steps"].push_back(sagas::ToJson(step, payloads));
  return json;
}

}  // namespace lockstep::sagas
