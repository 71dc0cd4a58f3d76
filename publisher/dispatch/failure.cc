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
  while (!text.empty()) {
    const size_t at = text.size() < kQuoteBytes ? std::string_view::npos
                                                : payload.find(text.substr(0, kQuoteBytes));
    if (at == std::string_view::npos) {
      clean += text[0];
      text.remove_prefix(1);
      continue;
    }
    const std::string_view quoted = payload.substr(at);
    const auto end = std::mismatch(text.begin(), text.end(), quoted.begin(), quoted.end()).first;
    clean += "…";
    text.remove_prefix(end - text.begin());
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
      return kRowRefused;
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
