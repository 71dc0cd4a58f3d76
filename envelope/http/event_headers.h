#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/attributes.h"
#include "envelope/http/endpoint_options.h"

namespace lockstep::envelope {

// The headers of an event, "Name: value". The body is its payload as it is.
//
//   Content-Type, Idempotency-Key (the event's id), traceparent and tracestate as they are;
//   kPlain: every other attribute as Lockstep-<name>;
//   kCloudEvents: ce-id, ce-source (`source`; empty = /<topic>), ce-type, ce-subject, ce-time,
//   every other as ce-<name> in lower-case letters and digits; what can't be that, as in kPlain.
//
// Names: letters and digits stay, _ becomes -, other bytes %XX. Values: blanks, quotes, percent
// signs and whatever is not printable ASCII as %XX of UTF-8, so that decodeURIComponent gives them
// back. No attribute can take the place of another one's header, nor of Lockstep-Signature. Fails
// when the content type can't stand in a header, or there is no event_id.
absl::StatusOr<std::vector<std::string>> EventHeaders(const Attributes& attributes,
                                                      HttpFormat format, std::string_view source);

// A value as it stands in a header.
std::string HeaderValue(std::string_view value);

}  // namespace lockstep::envelope
