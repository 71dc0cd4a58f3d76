#include "emulator/service/response_writer.h"

#include <grpc/slice.h>
#include <grpcpp/support/slice.h>

#include "emulator/core/ack_id.h"
#include "emulator/wire/wire.h"

namespace lockstep::emulator {
namespace {

using google::pubsub::v1::ReceivedMessage;
using google::pubsub::v1::StreamingPullResponse;

size_t BodySize(const Delivery& delivery) {
  size_t size =
      wire::BytesFieldSize(AckId::kLength) + wire::BytesFieldSize(delivery.message->wire.size());
  if (delivery.attempt > 0) size += 1 + wire::VarintSize(static_cast<uint64_t>(delivery.attempt));
  return size;
}

char* PutReceived(uint32_t subscription, const OutgoingMessage& outgoing, char* out) {
  const Delivery& delivery = *outgoing.delivery;
  out = wire::PutTag(StreamingPullResponse::kReceivedMessagesFieldNumber, wire::kBytes, out);
  out = wire::PutVarint(BodySize(delivery), out);
  out = wire::PutTag(ReceivedMessage::kAckIdFieldNumber, wire::kBytes, out);
  out = wire::PutVarint(AckId::kLength, out);
  AckId{subscription, delivery.message->sequence, delivery.lease, outgoing.copy}.Write(out);
  out += AckId::kLength;
  out = wire::PutBytes(ReceivedMessage::kMessageFieldNumber, delivery.message->wire, out);
  if (delivery.attempt > 0) {
    out = wire::PutTag(ReceivedMessage::kDeliveryAttemptFieldNumber, wire::kVarint, out);
    out = wire::PutVarint(static_cast<uint64_t>(delivery.attempt), out);
  }
  return out;
}

}  // namespace

grpc::ByteBuffer WriteResponse(const StreamingPullResponse& head, uint32_t subscription,
                               const std::vector<OutgoingMessage>& messages) {
  const size_t head_size = head.ByteSizeLong();
  size_t size = head_size;
  for (const OutgoingMessage& message : messages) {
    size += wire::BytesFieldSize(BodySize(*message.delivery));
  }
  grpc_slice memory = grpc_slice_malloc(size);
  char* out = reinterpret_cast<char*>(GRPC_SLICE_START_PTR(memory));
  head.SerializeToArray(out, static_cast<int>(head_size));
  out += head_size;
  for (const OutgoingMessage& message : messages) out = PutReceived(subscription, message, out);
  const grpc::Slice slice(memory, grpc::Slice::STEAL_REF);
  return {&slice, 1};
}

}  // namespace lockstep::emulator
