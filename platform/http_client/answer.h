#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::http {

// What a server answered.
struct Answer {
  int status = 0;
  std::optional<Millis> retry_after;  // at most kLongestRetryAfter
  std::string body;                   // its beginning: Settings::keep_body
};

inline constexpr Millis kLongestRetryAfter{3'600'000};

// Retry-After: seconds, or a date as HTTP writes it. Nothing when it is neither.
std::optional<Millis> ParseRetryAfter(std::string_view value, WallTime now);

// The beginning of a body for logs and errors: one line of at most 200 printable bytes, without any
// stretch that the server quoted of `sent`.
std::string BodySummary(std::string_view body, std::string_view sent);

// Replaces what `text` quotes of `payload` by an ellipsis.
std::string WithoutQuotes(std::string_view text, std::string_view payload);

// What an answer means to the event that was sent (docs/routes.md). Decided here and nowhere else.
struct Verdict {
  enum class Outcome {
    kDone,     // 2xx
    kOutage,   // 408, 425, 429, 5xx, 409 with Retry-After; no answer; 3xx: the endpoint is not
               // (any longer) there
    kRefused,  // other 4xx: the event's fault
  };
  Outcome outcome = Outcome::kDone;
  // Of kRefused: the answer may as well be about the endpoint (401, 403, 404, 405, 407, 410, …),
  // which then answers every event so. Whoever can should see whether others pass.
  bool maybe_endpoint = false;
  std::optional<Millis> retry_after;  // of kOutage: the server's wish
  std::string words;                  // for logs and errors; empty when done. Never what was sent
};
// `answered`: as Client gives it. `sent`: the request's body, which words never quote.
Verdict Judge(const absl::StatusOr<Answer>& answered, std::string_view sent);

}  // namespace lockstep::http
