#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pubsub/grpc/channel/timers.h"
#include "pubsub/transport.h"

namespace grpc {
class ChannelCredentials;
}

namespace lockstep::pubsub::grpc_client {

// A refused ack request of an exactly-once subscription names its ids in the trailer, each with its
// reason, in base64: of the 512 KiB that a request holds become 1.5 MiB when the ids are short (48
// bytes), less when they are long. gRPC's default of 8 KiB would lose them all.
inline constexpr int kMaxMetadataBytes = 4 << 20;

// What the parts of one transport share: the connections to one server and the timers. Held by a
// shared_ptr: a publisher or receiver may outlive its transport.
struct Client {
  std::string address;  // as messages name it
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  Timers timers;

  const std::shared_ptr<grpc::Channel>& channel(size_t index) const {
    return channels[index % channels.size()];
  }
};

absl::StatusOr<std::shared_ptr<Client>> Connect(const TransportOptions& options);

}  // namespace lockstep::pubsub::grpc_client
