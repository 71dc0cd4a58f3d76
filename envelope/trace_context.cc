#include "envelope/trace_context.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kVersion = 2;
constexpr size_t kTrace = 32;
constexpr size_t kSpan = 16;
constexpr size_t kFlags = 2;
constexpr size_t kLength = kVersion + 1 + kTrace + 1 + kSpan + 1 + kFlags;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::string_view TraceId(std::string_view traceparent) {
  // A later version may be longer; what version 00 defines stays in front.
  const bool longer = traceparent.size() > kLength && traceparent[kLength] == '-' &&
                      traceparent.substr(0, kVersion) != "00";
  if (traceparent.size() != kLength && !longer) return {};
  const std::string_view version = traceparent.substr(0, kVersion);
  const std::string_view trace = traceparent.substr(kVersion + 1, kTrace);
  const std::string_view span = traceparent.substr(kVersion + kTrace + 2, kSpan);
  const std::string_view flags = traceparent.substr(kLength - kFlags, kFlags);
  const bool dashes = traceparent[kVersion] == '-' && traceparent[kVersion + kTrace + 1] == '-' &&
                      traceparent[kLength - kFlags - 1] == '-';
  if (!dashes || !IsHex(version) || version == "ff" || !IsHex(flags)) return {};
  if (!IsHex(trace) || IsZero(trace) || !IsHex(span) || IsZero(span)) return {};
  return trace;
}

}  // namespace lockstep
