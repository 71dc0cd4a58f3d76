#include "envelope/event.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/text.h"

namespace lockstep::envelope {
namespace {

void AppendEscaped(std::string_view text, std::string& key) {
  for (const char c : text) {
    if (c == '%' || c == '/' || c == '@') {
      key += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      key += c;
    }
  }
}

// Version, trace, span and flags; x stands for a hex digit.
constexpr std::string_view kForm = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";

bool Fits(char form, char c) {
  return form == '-' ? c == '-' : (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::string AggregateKey(const Aggregate& aggregate) {
  std::string key;
  key.reserve(aggregate.type.size() + aggregate.id.size() + 2);
  AppendEscaped(aggregate.type, key);
  if (aggregate.tenant_id) {
    key += '@';
    AppendEscaped(*aggregate.tenant_id, key);
  }
  key += '/';
  key += aggregate.id;
  return key;
}

std::string ReadKind(Event& event) {
  const auto is = [&](const char* name, std::string_view wanted, std::string* wrong) {
    const auto found = event.attributes.find(name);
    if (found == event.attributes.end()) return false;
    if (found->second == wanted) return true;
    *wrong = fmt::format("the attribute '{}' is '{}', not '{}'", name, Truncate(found->second, 100),
                         wanted);
    return false;
  };
  std::string wrong;
  if (is(kKindAttribute, kKindSnapshot, &wrong)) event.kind = EventKind::kSnapshot;
  event.overwrite = is(kOverwriteAttribute, "true", &wrong);
  event.absent = is(kAbsentAttribute, "true", &wrong);
  if (!wrong.empty()) return wrong;
  if (event.overwrite && !event.is_snapshot()) {
    return fmt::format("the attribute '{}' is a snapshot's", kOverwriteAttribute);
  }
  if (event.absent && !event.overwrite) {
    return fmt::format("the attribute '{}' goes with '{}'", kAbsentAttribute, kOverwriteAttribute);
  }
  return wrong;
}

std::string_view TraceId(std::string_view traceparent) {
  const std::string_view head = traceparent.substr(0, kForm.size());
  if (!std::equal(kForm.begin(), kForm.end(), head.begin(), head.end(), Fits)) return {};
  const std::string_view version = head.substr(0, 2);
  // A later version may be longer; what version 00 defines stays in front.
  const bool longer = traceparent.size() > kForm.size();
  if (longer && (version == "00" || traceparent[kForm.size()] != '-')) return {};
  const std::string_view trace = head.substr(3, 32);
  const std::string_view span = head.substr(36, 16);
  return version == "ff" || IsZero(trace) || IsZero(span) ? std::string_view() : trace;
}

}  // namespace lockstep::envelope
