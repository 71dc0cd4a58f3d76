#include "sagas/engine/sql_outcome.h"

#include <string>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "sagas/engine/decide.h"

namespace lockstep::sagas {
namespace {

constexpr std::string_view kRefused = "LS005";    // lockstep.saga_refuse
constexpr std::string_view kCancelled = "57014";  // statement_timeout, or somebody

std::string WordsOf(const absl::Status& failed) {
  std::string words(MessageOf(failed));
  if (words.starts_with("ERROR:  ")) words.erase(0, 8);
  return words;
}

}  // namespace

Outcome OutcomeOf(const absl::Status& failed) {
  const std::string state = postgres::SqlState(failed);
  Outcome outcome{.words = WordsOf(failed), .certain = true};
  if (state == kRefused) {
    outcome.kind = Outcome::Kind::kRefused;
    outcome.code = kRefusedCode;
    return outcome;
  }
  if (state == kCancelled) {
    outcome.kind = Outcome::Kind::kFailed;
    outcome.code = kTimeoutCode;
    return outcome;
  }
  switch (postgres::Classify(failed)) {
    case postgres::ErrorClass::kTransient:
    case postgres::ErrorClass::kInDoubt:
      outcome.kind = Outcome::Kind::kLater;
      outcome.code = kUnavailableCode;
      break;
    case postgres::ErrorClass::kData:
      outcome.kind = Outcome::Kind::kFailed;
      outcome.code = kRefusedByDatabaseCode;
      break;
    case postgres::ErrorClass::kConfiguration:
      outcome.kind = Outcome::Kind::kBlocked;
      outcome.code = kMisconfiguredCode;
      break;
  }
  return outcome;
}

}  // namespace lockstep::sagas
