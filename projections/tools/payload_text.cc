#include "projections/tools/payload_text.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include "projections/write/group_projector.h"

namespace lockstep::projections {
namespace {

const google::protobuf::Descriptor* TypeOf(const EventMapping& mapping, int schema_version) {
  if (mapping.envelope.message != nullptr) return mapping.envelope.message;
  for (const Route& route : mapping.routes) {
    for (const Handler& handler : route.handlers) {
      if (handler.message != nullptr && handler.Takes(schema_version)) return handler.message;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> PayloadAsJson(const Projector& projector, const Event& event) {
  if (event.content_type == "application/json") return event.payload;
  const auto* const group = dynamic_cast<const GroupProjector*>(&projector);
  if (group == nullptr) return std::nullopt;
  const Mappings& mappings = group->plan().mappings;
  const auto found = mappings.events.find(event.event_type);
  if (found == mappings.events.end()) return std::nullopt;
  const auto* const type = TypeOf(found->second, event.schema_version);
  if (type == nullptr) return std::nullopt;
  const auto message = mappings.descriptors->Take(type, event.payload.size());
  if (!message->ParseFromString(event.payload)) return std::nullopt;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(*message, &json, options).ok()) {
    return std::nullopt;
  }
  return json;
}

}  // namespace lockstep::projections
