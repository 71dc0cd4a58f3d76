#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "emulator/core/delivery_queue.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

// One delivery with its ack id's parts; `copy` tells a duplicate made by fault injection.
struct OutgoingMessage {
  const Delivery* delivery;
  uint32_t copy = 0;
};

// `head` with `messages` as its received_messages, serialized into one piece of memory: a message
// costs a copy of its bytes and no protobuf.
grpc::ByteBuffer WriteResponse(const google::pubsub::v1::StreamingPullResponse& head,
                               uint32_t subscription, const std::vector<OutgoingMessage>& messages);

}  // namespace lockstep::emulator
