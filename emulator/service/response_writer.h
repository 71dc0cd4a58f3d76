#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "emulator/core/delivery_queue.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

// `head` with `deliveries` as its received_messages, serialized into one piece of memory: a message
// costs a copy of its bytes and no protobuf.
grpc::ByteBuffer WriteResponse(const google::pubsub::v1::StreamingPullResponse& head,
                               uint32_t subscription, const std::vector<Delivery>& deliveries);

}  // namespace lockstep::emulator
