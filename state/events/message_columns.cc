#include "state/events/message_columns.h"

#include <nlohmann/json.hpp>

namespace lockstep::state {
namespace {

std::string AttributesJson(const Attributes& attributes) {
  auto object = nlohmann::json::object();
  for (const auto& [name, value] : attributes) object[name] = value;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void MessageColumns::Add(const envelope::Received& message) {
  message_id.Add(message.message_id.value());
  ordering_key.Add(message.ordering_key);
  publish_time.Add(message.publish_time);
  attributes.Add(AttributesJson(message.event.attributes));
  payload.AddBytea(message.event.payload);
}

envelope::Received ReadMessage(const postgres::Row& row) {
  envelope::Received message;
  message.message_id = MessageId(row.String("message_id"));
  message.ordering_key = row.Text("ordering_key");
  message.publish_time = row.Time("publish_time");
  const auto attributes = nlohmann::json::parse(row.Text("attributes"), nullptr, false);
  for (const auto& [name, value] : attributes.items()) {
    if (value.is_string()) message.event.attributes[name] = value.get<std::string>();
  }
  message.event.payload = row.Bytes("payload");
  ReadAttributes(message);
  return message;
}

}  // namespace lockstep::state
