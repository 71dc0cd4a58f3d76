#include <string>

#include "fuzz/fuzz_target.h"
#include "platform/status.h"
#include "sagas/definition/condition.h"

using lockstep::sagas::Condition;
using lockstep::sagas::Json;

// A step's condition on the first line, what it is asked about below: it says yes or no, and its
// negation the opposite; or what is wrong, at which character.
LOCKSTEP_FUZZ_TARGET(saga_condition) {
  const size_t line = input.find('\n');
  const std::string_view text = input.substr(0, line);
  const auto condition = Condition::Parse(text);
  if (!condition.ok()) {
    LOCKSTEP_HOLDS(!lockstep::MessageOf(condition.status()).empty());
    return;
  }
  Json context = Json::object();
  if (line != std::string_view::npos) {
    context = Json::parse(input.substr(line + 1), nullptr, /*allow_exceptions=*/false);
  }
  const bool holds = condition->Holds(context);
  LOCKSTEP_HOLDS(condition->Holds(context) == holds);
  const auto opposite = Condition::Parse("not (" + std::string(text) + ")");
  if (opposite.ok()) LOCKSTEP_HOLDS(opposite->Holds(context) != holds);
  for (const auto& path : condition->paths()) {
    const auto again = lockstep::sagas::Path::Parse(path.text());
    LOCKSTEP_HOLDS(again.ok() && again->Find(context) == path.Find(context));
  }
}
