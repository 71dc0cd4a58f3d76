#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "envelope/attributes.h"
#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::envelope {

// The aggregate that versions, gaps and parking belong to.
struct Aggregate {
  std::optional<std::string> tenant_id;
  std::string type;
  std::string id;

  friend auto operator<=>(const Aggregate&, const Aggregate&) = default;
};

// An aggregate as one text: `video/123`, with a tenant `video@acme/123`. Injective.
std::string AggregateKey(const Aggregate& aggregate);

// What a message says of its aggregate: what happened to it (that made this version), or how it
// stands (at this version).
enum class EventKind : uint8_t { kEvent, kSnapshot };

// One event as the wire brings it (docs/wire.md): the attributes parsed, the payload untouched.
struct Event {
  EventId event_id;
  std::string event_type;
  Aggregate aggregate;
  int64_t version = 0;
  int schema_version = 1;
  WallTime occurred_at;
  std::string content_type;  // application/protobuf or application/json
  std::string topic;         // the logical one
  Attributes attributes;     // all of them, for mappings
  std::string payload;

  EventKind kind = EventKind::kEvent;
  bool overwrite = false;  // of a snapshot: it also replaces a row of its very version
  bool absent = false;     // of a snapshot that overwrites: the source has no such aggregate
  bool replay = false;     // the group has handled it before; known when it is applied, not sooner
  bool is_snapshot() const { return kind == EventKind::kSnapshot; }
};

// Reads the attributes that make an event a snapshot; answers what is wrong with them, empty when
// nothing is.
std::string ReadKind(Event& event);

// The trace id of a W3C traceparent (`00-<32 hex digits>-<16>-<2>`); empty when it is none. The
// header itself travels untouched: outbox row, attribute, logs.
std::string_view TraceId(std::string_view traceparent);

}  // namespace lockstep::envelope
