#include "publisher/dispatch/failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::publisher {
namespace {

// Shorter stretches occur in any sentence.
constexpr size_t kQuoteBytes = 8;

// Replaces what `text` quotes of `payload` by an ellipsis.
std::string Redact(std::string_view text, std::string_view payload) {
  std::string clean;
  size_t i = 0;
  while (i < text.size()) {
    size_t length = 0;
    if (text.size() - i >= kQuoteBytes && payload.size() >= kQuoteBytes) {
      const size_t at = payload.find(text.substr(i, kQuoteBytes));
      if (at != std::string_view::npos) {
        const std::string_view rest = payload.substr(at);
        const std::string_view tail = text.substr(i);
        while (length < std::min(rest.size(), tail.size()) && rest[length] == tail[length]) {
          ++length;
        }
      }
    }
    if (length == 0) {
      clean += text[i++];
    } else {
      clean += "…";
      i += length;
    }
  }
  return clean;
}

}  // namespace

Fault FaultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kResourceExhausted:  // a quota is the project's, not the row's
      return Fault::kOutage;
    case absl::StatusCode::kInvalidArgument:
      return Fault::kRefused;
    case absl::StatusCode::kAborted:
      return Fault::kBehind;
    case absl::StatusCode::kCancelled:
      return Fault::kCancelled;
    case absl::StatusCode::kAlreadyExists:
      return Fault::kKnown;
    default:
      return Fault::kRow;
  }
}

std::string_view ErrorCode(const absl::Status& status) {
  switch (FaultOf(status)) {
    case Fault::kOutage:
      return status.code() == absl::StatusCode::kDeadlineExceeded ? "TX.TIMEOUT"
                                                                  : "PROVIDER.UNAVAILABLE";
    case Fault::kRefused:
      return "SCHEMA.VALIDATION_FAILED";
    case Fault::kBehind:
    case Fault::kCancelled:
    case Fault::kKnown:
      return "";
    case Fault::kRow:
      break;
  }
  return "UNKNOWN.INTERNAL";
}

std::string ErrorSummary(const absl::Status& status, std::string_view payload, int max_bytes) {
  // Cut first: a bus may answer with megabytes, and what is cut needs no reading.
  const std::string words(MessageOf(status).substr(0, static_cast<size_t>(max_bytes)));
  const std::string text =
      fmt::format("{}: {}", absl::StatusCodeToString(status.code()), Redact(words, payload));
  return Truncate(text, static_cast<size_t>(max_bytes));
}

}  // namespace lockstep::publisher
