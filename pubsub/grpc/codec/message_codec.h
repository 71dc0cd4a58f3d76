#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

// A google.pubsub.v1.PublishRequest on the wire. Written straight from our messages: as protobuf
// objects every attribute would be copied twice and hashed once on its way.
grpc::ByteBuffer EncodePublishRequest(const std::string& topic,
                                      const std::vector<Message>& messages);

}  // namespace lockstep::pubsub::grpc_client
