#include "envelope/event.h"

#include <fmt/format.h>

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

}  // namespace lockstep::envelope
