#include "ctl/command/when.h"

#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::ctl {

absl::StatusOr<WallTime> ParseWhen(std::string_view option, std::string_view text, WallTime now) {
  std::string_view rest = Trim(text);
  if (rest == "now") return now;
  if (const auto time = ParseTimestamp(rest); time.ok()) return *time;
  if (rest.ends_with(" ago")) rest.remove_suffix(4);
  if (const auto duration = ParseDuration(rest); duration.ok()) return now - *duration;
  return InvalidArgument(
      "{}: '{}' is not a time; write RFC 3339, such as 2026-01-31T12:00:00Z, or '5m ago'", option,
      text);
}

}  // namespace lockstep::ctl
