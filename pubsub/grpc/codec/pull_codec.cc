#include "pubsub/grpc/codec/pull_codec.h"

#include <google/protobuf/timestamp.pb.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using google::protobuf::Timestamp;
using google::pubsub::v1::PubsubMessage;
using google::pubsub::v1::ReceivedMessage;
using google::pubsub::v1::StreamingPullResponse;

// One field of a message: its number, and its bytes or its number.
struct Field {
  uint32_t number = 0;
  std::string_view bytes;
  uint64_t value = 0;
};

// The fields of one message, in the order of the wire.
class Fields {
 public:
  explicit Fields(std::string_view wire) : at_(wire.data()), end_(at_ + wire.size()) {}

  // False at the end; then ok() says whether it was a good one.
  bool Next(Field* field) {
    if (at_ == end_ || !ok_) return false;
    uint64_t tag = 0;
    if (!Varint(&tag)) return Fail();
    field->number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        return Varint(&field->value) || Fail();
      case 1:
        return Skip(8);
      case 2:
        return Bytes(&field->bytes) || Fail();
      case 5:
        return Skip(4);
      default:
        return Fail();
    }
  }
  bool ok() const { return ok_; }

 private:
  bool Fail() { return ok_ = false; }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*at_++);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Bytes(std::string_view* bytes) {
    uint64_t size = 0;
    if (!Varint(&size) || size > static_cast<uint64_t>(end_ - at_)) return false;
    *bytes = {at_, size};
    at_ += size;
    return true;
  }
  bool Skip(ptrdiff_t bytes) {
    if (end_ - at_ < bytes) return Fail();
    at_ += bytes;
    return true;
  }

  const char* at_;
  const char* const end_;
  bool ok_ = true;
};

constexpr size_t kUsualAttributes = 12;  // what docs/wire.md lists, and some

bool DecodeTime(std::string_view wire, WallTime* time) {
  Fields fields(wire);
  int64_t seconds = 0;
  int64_t nanos = 0;
  for (Field field; fields.Next(&field);) {
    if (field.number == Timestamp::kSecondsFieldNumber) seconds = static_cast<int64_t>(field.value);
    if (field.number == Timestamp::kNanosFieldNumber) nanos = static_cast<int64_t>(field.value);
  }
  *time = WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::seconds(seconds) +
                                                                  std::chrono::nanoseconds(nanos)));
  return fields.ok();
}

bool DecodeAttribute(std::string_view wire, Message* message) {
  Fields fields(wire);
  std::string_view key;
  std::string_view value;
  for (Field field; fields.Next(&field);) (field.number == 1 ? key : value) = field.bytes;
  message->attributes[key] = value;  // of two with one name the last one counts
  return fields.ok();
}

bool DecodeMessage(std::string_view wire, Delivery* delivery) {
  Fields fields(wire);
  bool good = true;
  delivery->message.attributes.reserve(kUsualAttributes);
  for (Field field; fields.Next(&field);) {
    switch (field.number) {
      case PubsubMessage::kDataFieldNumber:
        delivery->message.data = field.bytes;
        break;
      case PubsubMessage::kAttributesFieldNumber:
        good = good && DecodeAttribute(field.bytes, &delivery->message);
        break;
      case PubsubMessage::kMessageIdFieldNumber:
        delivery->message_id = MessageId(std::string(field.bytes));
        break;
      case PubsubMessage::kPublishTimeFieldNumber:
        good = good && DecodeTime(field.bytes, &delivery->publish_time);
        break;
      case PubsubMessage::kOrderingKeyFieldNumber:
        delivery->message.ordering_key = field.bytes;
        break;
      default:
        break;
    }
  }
  return good && fields.ok();
}

bool DecodeReceived(std::string_view wire, Delivery* delivery) {
  Fields fields(wire);
  bool good = true;
  for (Field field; fields.Next(&field);) {
    switch (field.number) {
      case ReceivedMessage::kAckIdFieldNumber:
        delivery->token = AckToken(std::string(field.bytes));
        break;
      case ReceivedMessage::kMessageFieldNumber:
        good = good && DecodeMessage(field.bytes, delivery);
        break;
      case ReceivedMessage::kDeliveryAttemptFieldNumber:
        delivery->delivery_attempt = static_cast<int>(field.value);
        break;
      default:
        break;
    }
  }
  return good && fields.ok();
}

bool DecodeProperties(std::string_view wire, PulledMessages* pulled) {
  using Properties = StreamingPullResponse::SubscriptionProperties;
  Fields fields(wire);
  pulled->exactly_once = false;
  for (Field field; fields.Next(&field);) {
    if (field.number == Properties::kExactlyOnceDeliveryEnabledFieldNumber) {
      pulled->exactly_once = field.value != 0;
    }
  }
  return fields.ok();
}

}  // namespace

bool DecodePulled(std::string_view wire, PulledMessages* pulled) {
  Fields fields(wire);
  for (Field field; fields.Next(&field);) {
    if (field.number == StreamingPullResponse::kReceivedMessagesFieldNumber) {
      if (!DecodeReceived(field.bytes, &pulled->deliveries.emplace_back())) return false;
    } else if (field.number == StreamingPullResponse::kSubscriptionPropertiesFieldNumber) {
      if (!DecodeProperties(field.bytes, pulled)) return false;
    }
  }
  return fields.ok();
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
