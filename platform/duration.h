#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep {

// Durations as people write them in our configuration: "250ms", "1s", "1m", "168h", "31d", and
// sums such as "1h30m". A bare number is refused (except "0"), for its unit would be a guess.
absl::StatusOr<Millis> ParseDuration(std::string_view text);
std::string FormatDuration(Millis duration);

// Sizes: "512", "64KiB", "64MiB", "1GiB".
absl::StatusOr<int64_t> ParseBytes(std::string_view text);
std::string FormatBytes(int64_t bytes);

// RFC 3339 in UTC with microseconds, as in the `occurred_at` attribute.
std::string FormatTimestamp(WallTime time);
absl::StatusOr<WallTime> ParseTimestamp(std::string_view text);

}  // namespace lockstep
