#include "idempotency/store_sql.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::idempotency {
namespace {

std::string Interval(Millis time) { return fmt::format("{} milliseconds", time.count()); }

std::optional<std::string> TokenOf(const Held& held) {
  return held.token.empty() ? std::nullopt : std::optional(held.token);
}

}  // namespace

SqlValues CheckAndPutValues(const Request& request) {
  return {request.tenant,
          request.key,
          request.hash,
          Interval(request.ttl),
          Interval(request.lease),
          request.retry_failed ? "t" : "f"};
}

SqlValues FinishValues(const Held& held, const std::optional<std::string>& digest) {
  return {held.tenant, held.key, digest, TokenOf(held)};
}

SqlValues FailValues(const Held& held, const std::string& error) {
  return {held.tenant, held.key, error, TokenOf(held)};
}

SqlValues RenewValues(const Held& held, Millis lease) {
  return {held.tenant, held.key, Interval(lease), TokenOf(held)};
}

Answer ParseAnswer(const std::string& outcome, std::optional<std::string> digest,
                   std::optional<std::string> error, std::optional<std::string> token) {
  Answer answer{.outcome = Outcome::kBusy,
                .digest = std::move(digest),
                .error = std::move(error).value_or(""),
                .token = std::move(token).value_or("")};
  for (const Outcome known : {Outcome::kGo, Outcome::kDone, Outcome::kFailed, Outcome::kConflict}) {
    if (outcome == Name(known)) answer.outcome = known;
  }
  return answer;
}

}  // namespace lockstep::idempotency
