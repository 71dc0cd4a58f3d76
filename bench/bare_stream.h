#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::bench {

// The bound that a Pub/Sub server is measured against: a gRPC stream that carries the same bytes
// and does nothing else. No protobuf, no leases, no acks.
class BareServer {
 public:
  // Every stream gets `responses` copies of `response`.
  BareServer(std::string response, int64_t responses);
  ~BareServer();
  std::string address() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Reads one stream to its end; the number of bytes.
int64_t ReadBareStream(const std::string& address);

}  // namespace lockstep::bench
