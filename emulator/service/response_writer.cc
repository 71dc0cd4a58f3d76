#include "emulator/service/response_writer.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpc/slice.h>
#include <grpcpp/support/slice.h>

#include "emulator/core/ack_id.h"

namespace lockstep::emulator {
namespace {

using google::protobuf::io::CodedOutputStream;
using google::pubsub::v1::ReceivedMessage;
using google::pubsub::v1::StreamingPullResponse;

// Types of protobuf's wire format. Field numbers here are below 16, so that a tag is one byte.
enum WireType { kVarint = 0, kBytes = 2 };

size_t BytesFieldSize(size_t length) {
  return 1 + CodedOutputStream::VarintSize64(length) + length;
}

// A tag, and the number behind it: a value, or the length of what is to follow.
uint8_t* PutField(int field, WireType type, uint64_t number, uint8_t* out) {
  *out++ = static_cast<uint8_t>(field << 3 | type);
  return CodedOutputStream::WriteVarint64ToArray(number, out);
}

size_t BodySize(const Delivery& delivery) {
  size_t size = BytesFieldSize(AckId::kLength) + BytesFieldSize(delivery.message->wire.size());
  const auto attempt = static_cast<uint64_t>(delivery.attempt);
  if (attempt > 0) size += 1 + CodedOutputStream::VarintSize64(attempt);
  return size;
}

uint8_t* PutReceived(uint32_t subscription, const Delivery& delivery, uint8_t* out) {
  const Message& message = *delivery.message;
  out = PutField(StreamingPullResponse::kReceivedMessagesFieldNumber, kBytes, BodySize(delivery),
                 out);
  out = PutField(ReceivedMessage::kAckIdFieldNumber, kBytes, AckId::kLength, out);
  AckId{subscription, message.sequence, delivery.lease, delivery.copy}.Write(
      reinterpret_cast<char*>(out));
  out += AckId::kLength;
  out = PutField(ReceivedMessage::kMessageFieldNumber, kBytes, message.wire.size(), out);
  out = CodedOutputStream::WriteRawToArray(message.wire.data(),
                                           static_cast<int>(message.wire.size()), out);
  if (delivery.attempt == 0) return out;
  return PutField(ReceivedMessage::kDeliveryAttemptFieldNumber, kVarint,
                  static_cast<uint64_t>(delivery.attempt), out);
}

}  // namespace

grpc::ByteBuffer WriteResponse(const StreamingPullResponse& head, uint32_t subscription,
                               const std::vector<Delivery>& deliveries) {
  size_t size = head.ByteSizeLong();
  for (const Delivery& delivery : deliveries) size += BytesFieldSize(BodySize(delivery));
  grpc_slice memory = grpc_slice_malloc(size);
  uint8_t* out = head.SerializeWithCachedSizesToArray(GRPC_SLICE_START_PTR(memory));
  for (const Delivery& delivery : deliveries) out = PutReceived(subscription, delivery, out);
  const grpc::Slice slice(memory, grpc::Slice::STEAL_REF);
  return {&slice, 1};
}

}  // namespace lockstep::emulator
