#include "envelope/http/event_headers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "platform/status.h"

namespace lockstep::envelope {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Lower(char c) { return IsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c; }

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), Lower);
  return lower;
}

void AppendPercent(char c, std::string& text) {
  fmt::format_to(std::back_inserter(text), "%{:02X}", static_cast<unsigned char>(c));
}

// Can stand in a header as it is.
bool IsPlainText(std::string_view text) {
  return !text.empty() && text.front() != ' ' && text.back() != ' ' &&
         std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F; });
}

// An attribute's name behind "Lockstep-". With `exact`, no two names have the same header, although
// headers know no capitals.
std::string HeaderName(std::string_view name, bool exact) {
  std::string header;
  bool first = true;
  for (const char c : name) {
    if (IsLower(c) || IsDigit(c)) {
      header += first && IsLower(c) ? static_cast<char>(c - 'a' + 'A') : c;
    } else if (c == '_') {
      header += '-';
    } else if (IsUpper(c) && !exact) {
      header += c;
    } else {
      AppendPercent(c, header);
    }
    first = c == '_';
  }
  return header;
}

// The attributes that Lockstep sets (docs/wire.md), and what they are called in a CloudEvent.
struct Own {
  std::string_view attribute;
  std::string_view extension;
};
constexpr Own kOwn[] = {
    {"event_id", "id"},
    {"event_type", "type"},
    {"aggregate_id", "subject"},
    {"occurred_at", "time"},
    {"content_type", "datacontenttype"},
    {"traceparent", "traceparent"},
    {"tracestate", "tracestate"},
    {"aggregate_type", "aggregatetype"},
    {"version", "aggregateversion"},
    {"schema_version", "schemaversion"},
    {"topic", "topic"},
    {"sequence", "outboxsequence"},
    {"tenant_id", "tenantid"},
    {kKindAttribute, "lockstepkind"},
    {kOverwriteAttribute, "lockstepoverwrite"},
    {kAbsentAttribute, "lockstepabsent"},
};
const Own* FindOwn(std::string_view attribute) {
  const auto* const found = std::ranges::find(kOwn, attribute, &Own::attribute);
  return found == std::end(kOwn) ? nullptr : found;
}
// Names of CloudEvents itself that no attribute of ours fills.
constexpr std::string_view kReserved[] = {"specversion", "source", "dataschema", "data",
                                          "data_base64"};

class Headers {
 public:
  void Add(std::string_view name, std::string_view value) {
    headers_.push_back(fmt::format("{}: {}", name, value));
  }
  // An attribute of the event's own, which takes nobody's place.
  void Lockstep(std::string_view attribute, std::string_view value) {
    std::string name = HeaderName(attribute, /*exact=*/false);
    if (!taken_.insert(LowerCase(name)).second) {
      name = HeaderName(attribute, /*exact=*/true);
      // What is taken even so needs no capitals: signature.
      if (!taken_.insert(LowerCase(name)).second) name = Spelled(attribute);
    }
    Add("Lockstep-" + name, HeaderValue(value));
  }
  bool Extension(std::string_view name, std::string_view value) {
    if (!extensions_.insert(std::string(name)).second) return false;
    Add(fmt::format("ce-{}", name), HeaderValue(value));
    return true;
  }
  void Reserve(std::string_view lockstep) { taken_.insert(LowerCase(HeaderName(lockstep, false))); }
  void ReserveExtension(std::string_view name) { extensions_.insert(std::string(name)); }
  std::vector<std::string> Take() { return std::move(headers_); }

 private:
  static std::string Spelled(std::string_view attribute) {
    std::string name;
    for (const char c : attribute) AppendPercent(c, name);
    return name;
  }

  std::vector<std::string> headers_;
  std::set<std::string> taken_;
  std::set<std::string> extensions_;
};

// The name of an attribute of the event's own as a CloudEvents extension; empty when there is none.
std::string ExtensionName(std::string_view attribute) {
  std::string name;
  for (const char c : attribute) {
    if (c == '_' || c == '-' || c == '.') continue;
    const char lower = Lower(c);
    if (!IsLower(lower) && !IsDigit(lower)) return "";
    name += lower;
  }
  return name;
}

}  // namespace

std::string HeaderValue(std::string_view value) {
  std::string text;
  text.reserve(value.size());
  for (const char c : value) {
    if (c > ' ' && c < 0x7F && c != '"' && c != '%') {
      text += c;
    } else {
      AppendPercent(c, text);
    }
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> EventHeaders(const Attributes& attributes,
                                                      HttpFormat format, std::string_view source) {
  const auto value_of = [&](std::string_view name) -> std::string_view {
    const auto found = attributes.find(name);
    return found == attributes.end() ? std::string_view() : found->second;
  };
  const bool cloud = format == HttpFormat::kCloudEvents;
  const std::string_view id = value_of("event_id");
  if (!IsPlainText(id)) return InvalidArgument("the event has no event_id that a header can hold");
  const std::string_view type = value_of("content_type");
  if (!IsPlainText(type)) {
    return InvalidArgument("the event's content_type can't stand in an HTTP header");
  }
  Headers headers;
  headers.Add("Content-Type", type);
  headers.Add("Idempotency-Key", id);
  // What is no trace context is nobody's to read.
  for (const char* name : {"traceparent", "tracestate"}) {
    if (IsPlainText(value_of(name))) headers.Add(name, value_of(name));
  }
  headers.Reserve("signature");
  for (const std::string_view name : kReserved) headers.ReserveExtension(name);
  if (cloud) {
    headers.Add("ce-specversion", "1.0");
    headers.Add("ce-source", HeaderValue(source.empty() ? fmt::format("/{}", value_of("topic"))
                                                        : std::string(source)));
  }
  for (const Own& own : kOwn) {
    headers.Reserve(own.attribute);
    const auto found = attributes.find(own.attribute);
    if (found == attributes.end() || own.attribute == "content_type") continue;
    if (cloud) {
      // Empty is not allowed: what is not known is left out.
      if (!found->second.empty()) headers.Extension(own.extension, found->second);
    } else if (own.attribute != "traceparent" && own.attribute != "tracestate") {
      headers.Add("Lockstep-" + HeaderName(own.attribute, /*exact=*/false),
                  HeaderValue(found->second));
    }
  }
  for (const auto& [name, value] : attributes) {
    if (FindOwn(name) != nullptr || name == kHeartbeatAttribute) continue;
    if (cloud && !value.empty()) {
      const std::string extension = ExtensionName(name);
      const bool ours = std::ranges::find(kOwn, extension, &Own::extension) != std::end(kOwn);
      if (!extension.empty() && !ours && headers.Extension(extension, value)) continue;
    }
    headers.Lockstep(name, value);
  }
  return headers.Take();
}

}  // namespace lockstep::envelope
