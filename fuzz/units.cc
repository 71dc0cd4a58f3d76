#include "fuzz/fuzz_target.h"
#include "platform/duration.h"

// Durations, sizes and times as people write them: what is read is written so that it reads the
// same.
LOCKSTEP_FUZZ_TARGET(units) {
  if (const auto duration = lockstep::ParseDuration(input); duration.ok()) {
    const auto again = lockstep::ParseDuration(lockstep::FormatDuration(*duration));
    LOCKSTEP_HOLDS(again.ok() && *again == *duration);
  }
  if (const auto bytes = lockstep::ParseBytes(input); bytes.ok()) {
    const auto again = lockstep::ParseBytes(lockstep::FormatBytes(*bytes));
    LOCKSTEP_HOLDS(again.ok() && *again == *bytes);
  }
  if (const auto time = lockstep::ParseTimestamp(input); time.ok()) {
    const auto again = lockstep::ParseTimestamp(lockstep::FormatTimestamp(*time));
    LOCKSTEP_HOLDS(again.ok() && *again == *time);
  }
}
