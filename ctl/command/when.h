#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::ctl {

// A time as an operator writes it: RFC 3339 (as every command prints times), "5m ago" or "5m",
// "now". `option`: how it was given, for messages.
absl::StatusOr<WallTime> ParseWhen(std::string_view option, std::string_view text,
                                   WallTime now = Clock::System().Now());

// What --help says of such an option.
inline constexpr char kWhenHelp[] = "a time: RFC 3339, or such as '5m ago'";

}  // namespace lockstep::ctl
