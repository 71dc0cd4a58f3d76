#include "envelope/received.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "platform/duration.h"
#include "platform/text.h"

namespace lockstep::envelope {
namespace {

// An index entry of Postgres holds 2,704 bytes.
constexpr size_t kMaxAggregateKeyBytes = 2000;
constexpr size_t kUuidLength = 36;

// 8-4-4-4-12 hex digits, made lower case: the inbox answers with that form.
bool ParseUuid(std::string_view text, std::string* uuid) {
  if (text.size() != kUuidLength) return false;
  uuid->assign(text);
  for (size_t i = 0; i < kUuidLength; ++i) {
    char& c = (*uuid)[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (dash ? c == '-' : digit) continue;
    if (dash || c < 'A' || c > 'F') return false;
    c = static_cast<char>(c - 'A' + 'a');
  }
  return true;
}

// Fills an event attribute by attribute and remembers the first thing that is wrong.
class Reader {
 public:
  explicit Reader(Received& message) : message_(message) {}

  const std::string* Need(std::string_view name) {
    const auto found = message_.event.attributes.find(name);
    if (found == message_.event.attributes.end()) {
      Refuse(Poison::AttributeMissing(name));
      return nullptr;
    }
    if (found->second.empty()) {
      Fail(fmt::format("the attribute '{}' is empty", name));
      return nullptr;
    }
    return &found->second;
  }

  template <typename Parse>
  bool Take(std::string_view name, std::string_view wanted, const Parse& parse) {
    const std::string* const text = Need(name);
    if (text == nullptr) return false;
    if (parse(*text)) return true;
    Fail(fmt::format("the attribute '{}' is '{}', not {}", name, Truncate(*text, 100), wanted));
    return false;
  }

  void Fail(std::string reason) { Refuse(Poison::AttributeInvalid(std::move(reason))); }

 private:
  void Refuse(Poison poison) {
    if (!message_.poison) message_.poison = std::move(poison);
  }

  Received& message_;
};

// Why a message that was kept (parked, dead) was refused, where what was kept does not tell it.
constexpr char kRefused[] = "lockstep_refused";

// Postgres's text holds no NUL; such a value can be neither compared nor kept. What is kept in its
// place says so, or it would be applied when it is read again.
void RefuseNul(Received& message, Reader& reader) {
  const auto refuse = [&](std::string reason) {
    message.event.attributes[kRefused] = reason;
    reader.Fail(std::move(reason));
  };
  if (const auto kept = message.event.attributes.find(kRefused);
      kept != message.event.attributes.end()) {
    reader.Fail(kept->second);
  }
  const auto clean = [](std::string& text) {
    if (text.find('\0') == std::string::npos) return false;
    for (char& c : text) c = c == '\0' ? '?' : c;
    return true;
  };
  std::string bad_value;
  for (auto& [name, value] : message.event.attributes) {
    if (clean(value) && bad_value.empty()) bad_value = name.c_str();
  }
  const auto bad_names = erase_if(message.event.attributes, [](const auto& a) {
    return a.first.find('\0') != std::string::npos;
  });
  if (clean(message.ordering_key)) refuse("the ordering key holds a NUL character");
  if (!bad_value.empty()) {
    refuse(fmt::format("the attribute '{}' holds a NUL character", bad_value));
  }
  if (bad_names > 0) refuse("an attribute's name holds a NUL character");
}

void ReadAggregate(Received& message, Reader& reader) {
  Event& event = message.event;
  const std::string* const type = reader.Need("aggregate_type");
  const std::string* const id = reader.Need("aggregate_id");
  if (type == nullptr || id == nullptr) return;
  event.aggregate.type = *type;
  event.aggregate.id = *id;
  const auto tenant = event.attributes.find("tenant_id");
  if (tenant != event.attributes.end()) event.aggregate.tenant_id = tenant->second;
  std::string key = AggregateKey(event.aggregate);
  if (key.size() > kMaxAggregateKeyBytes) {
    reader.Fail(fmt::format("tenant, aggregate type and id have {} bytes together, more than {}",
                            key.size(), kMaxAggregateKeyBytes));
    return;
  }
  message.aggregate_key = std::move(key);
}

}  // namespace

void ReadAttributes(Received& message) {
  Event& event = message.event;
  Reader reader(message);
  RefuseNul(message, reader);
  std::string uuid;
  if (reader.Take("event_id", "a uuid", [&](const auto& t) { return ParseUuid(t, &uuid); })) {
    event.event_id = EventId(std::move(uuid));
  }
  if (const std::string* const type = reader.Need("event_type")) event.event_type = *type;
  ReadAggregate(message, reader);
  message.has_version = reader.Take("version", "a positive whole number", [&](const auto& t) {
    // Of the last one there is no next.
    return ParseWhole(t, &event.version) && event.version > 0 &&
           event.version < std::numeric_limits<int64_t>::max();
  });
  reader.Take("schema_version", "a whole number",
              [&](const auto& t) { return ParseWhole(t, &event.schema_version); });
  reader.Take("occurred_at", "a time as RFC 3339 writes it", [&](const auto& t) {
    const auto time = ParseTimestamp(t);
    if (time.ok()) event.occurred_at = *time;
    return time.ok();
  });
  reader.Take("content_type", "application/protobuf or application/json", [&](const auto& t) {
    event.content_type = t;
    return t == "application/protobuf" || t == "application/json";
  });
  if (std::string wrong = ReadKind(event); !wrong.empty()) reader.Fail(std::move(wrong));
  const auto topic = event.attributes.find("topic");
  if (topic != event.attributes.end()) event.topic = topic->second;
}

}  // namespace lockstep::envelope
