#include "emulator/core/message.h"

#include <fmt/format.h>

#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {

using google::pubsub::v1::PubsubMessage;

namespace {

// Counts the bytes once, where AppendToString would again.
void Serialize(const PubsubMessage& message, std::string* wire) {
  constexpr size_t kStampBytes = 64;  // room for what Stamp adds
  const size_t size = message.ByteSizeLong();
  wire->reserve(size + kStampBytes);
  wire->resize(size);
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(wire->data()));
}

}  // namespace

std::shared_ptr<Message> MakeMessage(const PubsubMessage& sent) {
  auto message = std::make_shared<Message>();
  message->ordering_key = sent.ordering_key();
  if (sent.message_id().empty() && !sent.has_publish_time()) {
    Serialize(sent, &message->wire);
  } else {  // the service sets them itself, whatever the client sent
    PubsubMessage body = sent;
    body.clear_message_id();
    body.clear_publish_time();
    Serialize(body, &message->wire);
  }
  return message;
}

void AddAttributes(const std::map<std::string, std::string>& attributes, Message* message) {
  PubsubMessage added;
  added.mutable_attributes()->insert(attributes.begin(), attributes.end());
  added.AppendToString(&message->wire);  // the last entry of a name counts
}

void Stamp(uint64_t sequence, uint64_t id, WallTime publish_time, Message* message) {
  message->sequence = sequence;
  message->id = fmt::format("{}", id);
  message->publish_time = publish_time;
  // Fields may stand in any order: what is appended to a serialized message belongs to it.
  PubsubMessage stamp;
  stamp.set_message_id(message->id);
  *stamp.mutable_publish_time() = ToProto(publish_time);
  stamp.AppendToString(&message->wire);
}

}  // namespace lockstep::emulator
