#include "sagas/engine/key_settler.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "idempotency/keys.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/step_call.h"

namespace lockstep::sagas {

absl::StatusOr<std::optional<Outcome>> AskKey(postgres::Connection& session, const Held& held,
                                              int step) {
  const bool undo = held.saga.steps[static_cast<size_t>(step)].compensating;
  const std::string key = CallFor(held, step, undo, Json()).key;
  auto found = idempotency::ShowKey(session, held.saga.tenant, key);
  if (absl::IsNotFound(found.status()) && held.saga.tenant) {
    found = idempotency::ShowKey(session, std::nullopt, key);
  }
  if (!found.ok() && !absl::IsNotFound(found.status())) {
    if (postgres::Classify(found.status()) == postgres::ErrorClass::kTransient) {
      return found.status();
    }
    // Nobody can tell.
    return Outcome{
        .kind = Outcome::Kind::kFailed,
        .code = kInDoubtCode,
        .words = fmt::format("its idempotency key can't be asked: {}", MessageOf(found.status()))};
  }
  if (found.ok()) {
    const auto text = [&](const char* name) {
      return found->at(name).is_string() ? found->at(name).get<std::string>() : "";
    };
    if (text("state") == "Succeeded") {
      Json result = Json::parse(text("digest"), nullptr, /*allow_exceptions=*/false);
      if (result.is_discarded()) result = Json(text("digest"));
      return Outcome::Done(KeptResult(std::move(result)));
    }
    if (text("state") == "Failed") {
      Outcome refused = Outcome::Refused(kRefusedCode, text("error"));
      refused.certain = true;
      return refused;
    }
    // What it says of its end stays true when it has expired.
    const bool over = found->at("expired").get<bool>() ||
                      (found->at("lapsed").is_boolean() && found->at("lapsed").get<bool>());
    if (!over) return std::nullopt;
  }
  return Outcome{.kind = Outcome::Kind::kFailed,
                 .code = kUnavailableCode,
                 .words = "no answer came, and its idempotency key is not taken",
                 .certain = true};
}

}  // namespace lockstep::sagas
