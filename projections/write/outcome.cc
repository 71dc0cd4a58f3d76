#include "projections/write/table_writer.h"

namespace lockstep::projections {

void Note(Outcome outcome, Outcome* of_event) {
  const auto weight = [](Outcome o) {
    switch (o) {
      case Outcome::kIgnored:
        return 0;
      case Outcome::kSuperseded:
        return 1;
      case Outcome::kApplied:
        return 2;
      case Outcome::kConflict:
        return 3;
      case Outcome::kForeign:
        break;
    }
    return 4;
  };
  if (weight(outcome) > weight(*of_event)) *of_event = outcome;
}

}  // namespace lockstep::projections
