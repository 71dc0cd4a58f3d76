#pragma once

#include <grpcpp/impl/codegen/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

// A google.pubsub.v1.PublishRequest on the wire. Written straight from our messages: as protobuf
// objects every attribute would be copied twice and hashed once on its way.
grpc::ByteBuffer EncodePublishRequest(const std::string& topic,
                                      const std::vector<Message>& messages);

// What we need of a google.pubsub.v1.StreamingPullResponse.
struct PulledMessages {
  std::vector<Delivery> deliveries;
  std::optional<bool> exactly_once;  // when the server says how the subscription delivers
  bool malformed = false;            // gRPC says only that there is nothing to read
};

// Read straight off the wire into our messages: protobuf objects would cost an allocation and a
// hash for every attribute, and as much again to take them apart. False = not well formed.
bool DecodePulled(std::string_view wire, PulledMessages* pulled);

}  // namespace lockstep::pubsub::grpc_client

namespace grpc {

// How gRPC reads them.
template <>
class SerializationTraits<lockstep::pubsub::grpc_client::PulledMessages> {
 public:
  static Status Deserialize(ByteBuffer* buffer,
                            lockstep::pubsub::grpc_client::PulledMessages* pulled);
};

}  // namespace grpc
