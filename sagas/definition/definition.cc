#include "sagas/definition/definition.h"

#include <openssl/evp.h>

#include <array>
#include <iterator>

#include "platform/duration.h"
#include "platform/status.h"
#include "sagas/definition/canonical.h"
#include "sagas/definition/check.h"
#include "sagas/definition/reader.h"

namespace lockstep::sagas {
namespace {

void PutAction(const Action& action, Json* json) {
  (*json)["action"] = ActionText(action);
  if (!action.request.is_null()) (*json)["request"] = Canonical(action.request);
  const bool call = action.kind == ActionKind::kHttp || action.kind == ActionKind::kFunction;
  if (call) (*json)["idempotent"] = action.idempotent;
  if (action.settled_by_key) (*json)["settled_by"] = "idempotency_key";
  if (action.reply) (*json)["reply"] = true;
  if (!action.event_type.empty()) (*json)["event_type"] = action.event_type;
  (*json)["timeout"] = FormatDuration(action.timeout);
  if (action.kind == ActionKind::kWait) return;
  const RetryPolicy& retry = action.retry;
  (*json)["retry"] = {{"max_attempts", retry.max_attempts},
                      {"base", FormatDuration(retry.base)},
                      {"factor", Canonical(retry.factor)},
                      {"jitter", Canonical(retry.jitter_amount)},
                      {"cap", FormatDuration(retry.cap)}};
}

}  // namespace

std::string_view KindName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kSql:
      return "sql";
    case ActionKind::kHttp:
      return "http";
    case ActionKind::kBus:
      return "bus";
    case ActionKind::kFunction:
      return "fn";
    case ActionKind::kWait:
      return "wait";
  }
  return "";
}

std::string ActionText(const Action& action) {
  if (action.kind == ActionKind::kWait) return "wait";
  if (action.kind == ActionKind::kHttp) return action.target;
  return fmt::format("{}:{}", KindName(action.kind), action.target);
}

Json Definition::ToJson() const {
  Json json;
  json["saga"] = name;
  json["version"] = version;
  json["timeout"] = FormatDuration(timeout);
  json["on_failure"] = on_failure == OnFailure::kStop ? "stop" : "compensate";
  if (!outbox.empty()) json["outbox"] = outbox;
  json["steps"] = Json::array();
  for (const Step& step : steps) {
    Json& entry = json["steps"].emplace_back(Json{{"name", step.name}});
    PutAction(step.action, &entry);
    if (!step.when.empty()) entry["when"] = step.when;
    if (!step.concurrency_tag.empty()) entry["concurrency_tag"] = step.concurrency_tag;
    if (step.compensate.has_value()) PutAction(*step.compensate, &entry["compensate"]);
  }
  return json;
}

std::string Definition::Hash() const {
  const std::string text = ToJson().dump(-1, ' ', false, Json::error_handler_t::replace);
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), sum.data(), &size, EVP_sha256(), nullptr) != 1) {
    return "";
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) fmt::format_to(std::back_inserter(hex), "{:02x}", sum[i]);
  return hex;
}

absl::Status Definition::Validate() const {
  std::vector<std::string> lines;
  for (const Mistake& mistake : FindMistakes(*this)) lines.push_back(Sentence(mistake));
  if (lines.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(lines, "\n"));
}

absl::StatusOr<Definition> Definition::FromJson(const Json& json) {
  DefinitionReading reading = ReadDefinition(json);
  std::vector<std::string> lines;
  for (const Mistake& mistake : reading.mistakes) lines.push_back(Sentence(mistake));
  if (!lines.empty()) return InvalidArgument("{}", fmt::join(lines, "\n"));
  return std::move(reading.definition);
}

}  // namespace lockstep::sagas
