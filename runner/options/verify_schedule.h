#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::runner {

// Whether, how often and with what a group's tables are compared with their source.
struct VerifySchedule {
  Millis every{0};                     // a full pass in so long; 0 = none
  std::vector<std::string> backfills;  // files: what the sources are
  std::string source;                  // their database
  bool deep = false;                   // values too
  Millis grace{5'000};                 // verify/passage.h
  int rows = 10'000;                   // in a range, about

  absl::Status Validate(const std::string& group) const;
};

void Bind(ConfigSection& config, VerifySchedule& schedule);

}  // namespace lockstep::runner
