#include "runner/message/event_parser.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

#include "platform/duration.h"
#include "platform/text.h"

namespace lockstep::runner {
namespace {

using projections::Event;

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

template <typename Int>
bool ParseInt(std::string_view text, Int* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

// Fills an event attribute by attribute and remembers the first thing that is wrong.
class Reader {
 public:
  explicit Reader(Inbound& inbound) : inbound_(inbound) {}

  const std::string* Need(std::string_view name) {
    const auto found = inbound_.event.attributes.find(name);
    if (found == inbound_.event.attributes.end()) {
      Fail("EVENT.ATTRIBUTE_MISSING", fmt::format("the message has no attribute '{}'", name));
      return nullptr;
    }
    if (found->second.empty()) {
      Fail("EVENT.ATTRIBUTE_INVALID", fmt::format("the attribute '{}' is empty", name));
      return nullptr;
    }
    return &found->second;
  }

  template <typename Parse>
  bool Take(std::string_view name, std::string_view wanted, const Parse& parse) {
    const std::string* const text = Need(name);
    if (text == nullptr) return false;
    if (parse(*text)) return true;
    Fail("EVENT.ATTRIBUTE_INVALID",
         fmt::format("the attribute '{}' is '{}', not {}", name, Truncate(*text, 100), wanted));
    return false;
  }

  void Fail(std::string_view code, std::string reason) {
    if (!inbound_.poison) inbound_.poison = Poison{std::string(code), std::move(reason)};
  }

 private:
  Inbound& inbound_;
};

// Why a message that was kept (parked, dead) was refused, where what was kept does not tell it.
constexpr char kRefused[] = "lockstep_refused";

// Postgres's text holds no NUL; such a value can be neither compared nor kept. What is kept in its
// place says so, or it would be applied when it is read again.
void RefuseNul(Inbound& inbound, Reader& reader) {
  const auto refuse = [&](std::string reason) {
    inbound.event.attributes[kRefused] = reason;
    reader.Fail("EVENT.ATTRIBUTE_INVALID", std::move(reason));
  };
  if (const auto kept = inbound.event.attributes.find(kRefused);
      kept != inbound.event.attributes.end()) {
    reader.Fail("EVENT.ATTRIBUTE_INVALID", kept->second);
  }
  const auto clean = [](std::string& text) {
    if (text.find('\0') == std::string::npos) return false;
    for (char& c : text) c = c == '\0' ? '?' : c;
    return true;
  };
  std::string bad_value;
  for (auto& [name, value] : inbound.event.attributes) {
    if (clean(value) && bad_value.empty()) bad_value = name.c_str();
  }
  const auto bad_names = erase_if(inbound.event.attributes, [](const auto& a) {
    return a.first.find('\0') != std::string::npos;
  });
  if (clean(inbound.ordering_key)) refuse("the ordering key holds a NUL character");
  if (!bad_value.empty()) {
    refuse(fmt::format("the attribute '{}' holds a NUL character", bad_value));
  }
  if (bad_names > 0) refuse("an attribute's name holds a NUL character");
}

void ReadAggregate(Inbound& inbound, Reader& reader) {
  Event& event = inbound.event;
  const std::string* const type = reader.Need("aggregate_type");
  const std::string* const id = reader.Need("aggregate_id");
  if (type == nullptr || id == nullptr) return;
  event.aggregate.type = *type;
  event.aggregate.id = *id;
  const auto tenant = event.attributes.find("tenant_id");
  if (tenant != event.attributes.end()) event.aggregate.tenant_id = tenant->second;
  std::string key = AggregateKey(event.aggregate);
  if (key.size() > kMaxAggregateKeyBytes) {
    reader.Fail("EVENT.ATTRIBUTE_INVALID",
                fmt::format("tenant, aggregate type and id have {} bytes together, more than {}",
                            key.size(), kMaxAggregateKeyBytes));
    return;
  }
  inbound.aggregate_key = std::move(key);
}

}  // namespace

Inbound EventParser::Parse(pubsub::Delivery delivery, WallTime received_at) {
  Inbound inbound;
  inbound.token = std::move(delivery.token);
  inbound.message_id = std::move(delivery.message_id);
  inbound.ordering_key = std::move(delivery.message.ordering_key);
  inbound.publish_time = delivery.publish_time;
  inbound.received_at = received_at;
  Event& event = inbound.event;
  event.payload = std::move(delivery.message.data);
  event.attributes = std::move(delivery.message.attributes);

  Reader reader(inbound);
  RefuseNul(inbound, reader);
  std::string uuid;
  if (reader.Take("event_id", "a uuid", [&](const auto& t) { return ParseUuid(t, &uuid); })) {
    event.event_id = EventId(std::move(uuid));
  }
  if (const std::string* const type = reader.Need("event_type")) event.event_type = *type;
  ReadAggregate(inbound, reader);
  inbound.has_version = reader.Take("version", "a positive whole number", [&](const auto& t) {
    // Of the last one there is no next.
    return ParseInt(t, &event.version) && event.version > 0 &&
           event.version < std::numeric_limits<int64_t>::max();
  });
  reader.Take("schema_version", "a whole number",
              [&](const auto& t) { return ParseInt(t, &event.schema_version); });
  reader.Take("occurred_at", "a time as RFC 3339 writes it", [&](const auto& t) {
    const auto time = ParseTimestamp(t);
    if (time.ok()) event.occurred_at = *time;
    return time.ok();
  });
  reader.Take("content_type", "application/protobuf or application/json", [&](const auto& t) {
    event.content_type = t;
    return t == "application/protobuf" || t == "application/json";
  });
  const auto topic = event.attributes.find("topic");
  if (topic != event.attributes.end()) event.topic = topic->second;
  return inbound;
}

}  // namespace lockstep::runner
