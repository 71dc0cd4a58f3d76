#include "runner/message/message_columns.h"

#include <nlohmann/json.hpp>

#include "runner/message/event_parser.h"

namespace lockstep::runner {

std::string AttributesJson(const Attributes& attributes) {
  auto object = nlohmann::json::object();
  for (const auto& [name, value] : attributes) object[name] = value;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void MessageColumns::Add(const Inbound& item) {
  message_id.Add(item.message_id.value());
  ordering_key.Add(item.ordering_key);
  publish_time.Add(item.publish_time);
  attributes.Add(AttributesJson(item.event.attributes));
  payload.AddBytea(item.event.payload);
}

Inbound ReadMessage(const postgres::Result& rows, int row, int first) {
  pubsub::Delivery delivery;
  delivery.message_id = MessageId(std::string(rows.Text(row, first)));
  delivery.message.ordering_key = rows.Text(row, first + 1);
  delivery.publish_time = rows.Time(row, first + 2);
  const auto attributes = nlohmann::json::parse(rows.Text(row, first + 3), nullptr, false);
  for (const auto& [name, value] : attributes.items()) {
    if (value.is_string()) delivery.message.attributes[name] = value.get<std::string>();
  }
  delivery.message.data = rows.Bytes(row, first + 4);
  return EventParser::Parse(std::move(delivery), Clock::System().Now());
}

}  // namespace lockstep::runner
