#include "platform/http_client/answer.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "platform/printable.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::http {
namespace {

constexpr size_t kSummaryBytes = 200;
constexpr size_t kQuoteBytes = 8;  // shorter stretches occur in any sentence

// Of whom an answer speaks that no event can have caused alone.
constexpr std::array kMaybeEndpoint = {401, 402, 403, 404, 405, 406, 407, 410, 421, 426, 451};

std::string_view Advice(int status) {
  switch (status) {
    case 401:
    case 403:
    case 407:
      return "; look at headers_file and secret_file of the route";
    case 404:
    case 405:
    case 410:
      return "; look at the path of the address";
    case 413:
    case 431:
      return "; the event is larger than the endpoint takes";
    default:
      return "";
  }
}

}  // namespace

std::optional<Millis> ParseRetryAfter(std::string_view value, WallTime now) {
  const std::string_view text = Trim(value);
  int64_t seconds = 0;
  const bool digits = !text.empty() && text.size() < 80 &&
                      std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (digits) {
    if (!ParseWhole(text, &seconds)) return kLongestRetryAfter;
  } else {
    // A date begins with a day's name; curl_getdate would take much else.
    const bool named = text.size() > 3 && text.size() < 80 && text[0] >= 'A' && text[0] <= 'Z';
    const time_t at = named ? curl_getdate(std::string(text).c_str(), nullptr) : -1;
    if (at == -1) return std::nullopt;
    seconds = at - std::chrono::system_clock::to_time_t(now);
  }
  const int64_t longest = kLongestRetryAfter.count() / 1000;
  return Millis(std::clamp<int64_t>(seconds, 0, longest) * 1000);
}

std::string WithoutQuotes(std::string_view text, std::string_view payload) {
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
    text.remove_prefix(static_cast<size_t>(end - text.begin()));
  }
  return clean;
}

std::string BodySummary(std::string_view body, std::string_view sent) {
  const std::string_view begin = Trim(body.substr(0, 2 * kSummaryBytes));
  std::string shown = Printable(WithoutQuotes(begin, sent));
  if (shown.size() <= kSummaryBytes) return shown;
  return Truncate(shown, kSummaryBytes - 3) + "…";
}

Verdict Judge(const absl::StatusOr<Answer>& answered, std::string_view sent) {
  Verdict verdict;
  if (!answered.ok()) {
    verdict.outcome = Verdict::Outcome::kOutage;
    verdict.words = MessageOf(answered.status());
    return verdict;
  }
  const int status = answered->status;
  if (status >= 200 && status < 300) return verdict;
  const std::string summary = BodySummary(answered->body, sent);
  verdict.words = fmt::format("answered {}", status);
  if (status >= 300 && status < 400) {
    verdict.outcome = Verdict::Outcome::kOutage;
    verdict.words +=
        ", a redirect, which is never followed: put the new address into the configuration";
    return verdict;
  }
  // 409 alone says no; with Retry-After an earlier try is at it still (docs/idempotency.md).
  const bool later = status == 408 || status == 425 || status == 429 || status < 200 ||
                     status >= 500 || (status == 409 && answered->retry_after.has_value());
  if (later) {
    verdict.outcome = Verdict::Outcome::kOutage;
    verdict.retry_after = answered->retry_after;
  } else {
    verdict.outcome = Verdict::Outcome::kRefused;
    verdict.maybe_endpoint = std::ranges::find(kMaybeEndpoint, status) != kMaybeEndpoint.end();
    verdict.words += Advice(status);
  }
  if (!summary.empty()) verdict.words += fmt::format(": {}", summary);
  return verdict;
}

}  // namespace lockstep::http
