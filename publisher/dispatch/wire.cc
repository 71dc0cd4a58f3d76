#include "publisher/dispatch/wire.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

constexpr size_t kOwnAttributes = 13;  // those below; a row's own come on top

}  // namespace

absl::StatusOr<Attributes> AttributesOf(const OutboxRow& row) {
  Attributes attributes;
  attributes.reserve(kOwnAttributes);
  if (row.attributes != "{}" && !row.attributes.empty()) {
    const auto own = nlohmann::json::parse(row.attributes, nullptr, /*allow_exceptions=*/false);
    if (!own.is_object()) return InvalidArgument("the row's attributes are no JSON object");
    for (const auto& [name, value] : own.items()) {
      if (!value.is_string()) return InvalidArgument("attribute {} is not a string", name);
      attributes[name] = value.get<std::string>();
    }
  }
  // After the row's own, which can't override these.
  attributes["event_id"] = row.event_id.value();
  attributes["event_type"] = row.event_type;
  attributes["aggregate_type"] = row.aggregate_type;
  attributes["aggregate_id"] = row.aggregate_id;
  attributes["version"] = fmt::format("{}", row.version);
  attributes["schema_version"] = fmt::format("{}", row.schema_version);
  attributes["occurred_at"] = row.occurred_at;
  attributes["content_type"] = row.content_type;
  attributes["topic"] = row.topic;
  attributes["sequence"] = fmt::format("{}", row.sequence);
  if (row.tenant_id.has_value()) attributes["tenant_id"] = *row.tenant_id;
  if (row.traceparent.has_value()) attributes["traceparent"] = *row.traceparent;
  if (row.tracestate.has_value()) attributes["tracestate"] = *row.tracestate;
  attributes.erase(kHeartbeatAttribute);
  return attributes;
}

absl::StatusOr<pubsub::Message> ToMessage(const OutboxRow& row) {
  pubsub::Message message;
  ASSIGN_OR_RETURN(message.attributes, AttributesOf(row));
  message.data = row.payload;
  message.ordering_key = row.aggregate_id;
  RETURN_IF_ERROR(pubsub::CheckLimits(message));
  return message;
}

pubsub::Message HeartbeatMessage(const std::string& position) {
  pubsub::Message message;
  message.attributes[kHeartbeatAttribute] = position;
  return message;
}

}  // namespace lockstep::publisher
