#include "pubsub/grpc/codec/message_codec.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstdint>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/grpc/codec/resource_codec.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using google::protobuf::io::CodedOutputStream;
using google::pubsub::v1::PublishRequest;
using google::pubsub::v1::PubsubMessage;
using google::pubsub::v1::ReceivedMessage;
using google::pubsub::v1::StreamingPullResponse;

constexpr int kLengthDelimited = 2;
constexpr int kEntryKey = 1;  // of a map's entry, by the protocol
constexpr int kEntryValue = 2;

// Every field number here is below 16: its tag has one byte.
size_t FieldSize(size_t length) {
  return 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(length)) + length;
}
// proto3 leaves empty fields out.
size_t TextSize(const std::string& text) { return text.empty() ? 0 : FieldSize(text.size()); }

uint8_t* WriteHead(int field, size_t length, uint8_t* out) {
  *out++ = static_cast<uint8_t>(field << 3 | kLengthDelimited);
  return CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(length), out);
}
uint8_t* WriteField(int field, const std::string& text, uint8_t* out) {
  out = WriteHead(field, text.size(), out);
  return std::copy(text.begin(), text.end(), out);
}
uint8_t* WriteText(int field, const std::string& text, uint8_t* out) {
  return text.empty() ? out : WriteField(field, text, out);
}

// A map's entry has both of its fields, empty or not.
size_t EntrySize(const std::string& key, const std::string& value) {
  return FieldSize(key.size()) + FieldSize(value.size());
}

size_t MessageSize(const Message& message) {
  size_t size = TextSize(message.data) + TextSize(message.ordering_key);
  for (const auto& [key, value] : message.attributes) size += FieldSize(EntrySize(key, value));
  return size;
}

uint8_t* WriteMessage(const Message& message, uint8_t* out) {
  out = WriteText(PubsubMessage::kDataFieldNumber, message.data, out);
  for (const auto& [key, value] : message.attributes) {
    out = WriteHead(PubsubMessage::kAttributesFieldNumber, EntrySize(key, value), out);
    out = WriteField(kEntryKey, key, out);
    out = WriteField(kEntryValue, value, out);
  }
  return WriteText(PubsubMessage::kOrderingKeyFieldNumber, message.ordering_key, out);
}

// One field of a message: its number, and its bytes or its value.
struct Field {
  uint32_t number = 0;
  std::string_view bytes;
  uint64_t value = 0;
};

// These take something off the front. False = it is not well formed.
bool TakeVarint(std::string_view* wire, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < std::min<size_t>(wire->size(), 10); ++i) {
    const auto byte = static_cast<uint8_t>((*wire)[i]);
    *value |= static_cast<uint64_t>(byte & 0x7f) << 7 * i;
    if (byte >= 0x80) continue;
    wire->remove_prefix(i + 1);
    return true;
  }
  return false;
}
bool TakeBytes(std::string_view* wire, uint64_t size, std::string_view* bytes) {
  if (size > wire->size()) return false;
  *bytes = wire->substr(0, size);
  wire->remove_prefix(size);
  return true;
}
bool TakeField(std::string_view* wire, Field* field) {
  uint64_t tag = 0;
  uint64_t size = 0;
  if (!TakeVarint(wire, &tag)) return false;
  field->number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      return TakeVarint(wire, &field->value);
    case 1:
      return TakeBytes(wire, 8, &field->bytes);
    case kLengthDelimited:
      return TakeVarint(wire, &size) && TakeBytes(wire, size, &field->bytes);
    case 5:
      return TakeBytes(wire, 4, &field->bytes);
    default:
      return false;
  }
}

// The fields of one message, in the order of the wire. False = one, or `use` of one, has failed.
template <typename Use>
bool ForEachField(std::string_view wire, const Use& use) {
  while (!wire.empty()) {
    Field field;
    if (!TakeField(&wire, &field) || !use(field)) return false;
  }
  return true;
}

constexpr size_t kUsualAttributes = 12;  // what docs/wire.md lists, and some

// What a message or a response has once is left to protobuf.
template <typename Proto>
bool Parse(std::string_view wire, Proto* proto) {
  return proto->ParseFromArray(wire.data(), static_cast<int>(wire.size()));
}

bool DecodeAttribute(std::string_view wire, Message* message) {
  std::string_view key;
  std::string_view value;
  const bool good = ForEachField(wire, [&](const Field& field) {
    (field.number == kEntryKey ? key : value) = field.bytes;
    return true;
  });
  message->attributes[key] = value;  // of two with one name the last one counts
  return good;
}

bool DecodeTime(std::string_view wire, WallTime* time) {
  google::protobuf::Timestamp proto;
  const bool good = Parse(wire, &proto);
  *time = FromProto(proto);
  return good;
}

bool DecodeMessage(std::string_view wire, Delivery* delivery) {
  Message& message = delivery->message;
  message.attributes.reserve(kUsualAttributes);
  return ForEachField(wire, [&](const Field& field) {
    switch (field.number) {
      case PubsubMessage::kDataFieldNumber:
        message.data = field.bytes;
        return true;
      case PubsubMessage::kAttributesFieldNumber:
        return DecodeAttribute(field.bytes, &message);
      case PubsubMessage::kMessageIdFieldNumber:
        delivery->message_id = MessageId(std::string(field.bytes));
        return true;
      case PubsubMessage::kPublishTimeFieldNumber:
        return DecodeTime(field.bytes, &delivery->publish_time);
      case PubsubMessage::kOrderingKeyFieldNumber:
        message.ordering_key = field.bytes;
        return true;
      default:
        return true;
    }
  });
}

bool DecodeReceived(std::string_view wire, Delivery* delivery) {
  return ForEachField(wire, [&](const Field& field) {
    switch (field.number) {
      case ReceivedMessage::kAckIdFieldNumber:
        delivery->token = AckToken(std::string(field.bytes));
        return true;
      case ReceivedMessage::kMessageFieldNumber:
        return DecodeMessage(field.bytes, delivery);
      case ReceivedMessage::kDeliveryAttemptFieldNumber:
        delivery->delivery_attempt = static_cast<int>(field.value);
        return true;
      default:
        return true;
    }
  });
}

bool DecodeProperties(std::string_view wire, PulledMessages* pulled) {
  StreamingPullResponse::SubscriptionProperties properties;
  const bool good = Parse(wire, &properties);
  pulled->exactly_once = properties.exactly_once_delivery_enabled();
  return good;
}

}  // namespace

grpc::ByteBuffer EncodePublishRequest(const std::string& topic,
                                      const std::vector<Message>& messages) {
  std::vector<size_t> sizes;
  sizes.reserve(messages.size());
  size_t total = TextSize(topic);
  for (const Message& message : messages) {
    sizes.push_back(MessageSize(message));
    total += FieldSize(sizes.back());
  }
  const grpc::Slice slice(total);
  auto* out = const_cast<uint8_t*>(slice.begin());  // ours alone until it is in the buffer
  out = WriteText(PublishRequest::kTopicFieldNumber, topic, out);
  for (size_t i = 0; i < messages.size(); ++i) {
    out = WriteHead(PublishRequest::kMessagesFieldNumber, sizes[i], out);
    out = WriteMessage(messages[i], out);
  }
  return grpc::ByteBuffer(&slice, 1);
}

bool DecodePulled(std::string_view wire, PulledMessages* pulled) {
  return ForEachField(wire, [&](const Field& field) {
    switch (field.number) {
      case StreamingPullResponse::kReceivedMessagesFieldNumber:
        return DecodeReceived(field.bytes, &pulled->deliveries.emplace_back());
      case StreamingPullResponse::kSubscriptionPropertiesFieldNumber:
        return DecodeProperties(field.bytes, pulled);
      default:
        return true;
    }
  });
}

}  // namespace lockstep::pubsub::grpc_client

namespace grpc {

Status SerializationTraits<lockstep::pubsub::grpc_client::PulledMessages>::Deserialize(
    ByteBuffer* buffer, lockstep::pubsub::grpc_client::PulledMessages* pulled) {
  pulled->deliveries.clear();
  pulled->exactly_once.reset();
  Slice whole;
  const Status joined = buffer->DumpToSingleSlice(&whole);
  buffer->Clear();
  if (!joined.ok()) return joined;
  const std::string_view wire(reinterpret_cast<const char*>(whole.begin()), whole.size());
  pulled->malformed = !lockstep::pubsub::grpc_client::DecodePulled(wire, pulled);
  if (!pulled->malformed) return Status::OK;
  return {StatusCode::INTERNAL, "a response of StreamingPull is not well formed"};
}

}  // namespace grpc
