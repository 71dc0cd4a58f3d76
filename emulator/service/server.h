#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "emulator/faults/faults.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"

namespace lockstep::emulator {

struct Options {
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = a free one
  // A directory in which everything outlives the process; empty = in memory alone. It is one
  // server's at a time, from construction to destruction.
  std::string state;
  FaultOptions faults;
  const Clock* clock = &Clock::System();  // tests set their own
};

// An embedded Pub/Sub: google.pubsub.v1 over gRPC, everything in memory. One object is one Pub/Sub,
// empty unless Options::state holds what an earlier one had; several can live in a process. Stop
// ends every call; what was published is gone with it, or kept in Options::state.
//
//   emulator::Server server;
//   server.Start();
//   setenv("PUBSUB_EMULATOR_HOST", server.address().c_str(), 1);
class Server : public Service {
 public:
  explicit Server(Options options = {});
  ~Server() override;

  // UNAVAILABLE, with a sentence for the user, when the port is taken.
  absl::Status Start() override;
  void Stop() override;

  // "127.0.0.1:43121". REQUIRES: started.
  const std::string& address() const { return address_; }

  // Fault injection and what open streams hold, at any time.
  Faults& faults();

 private:
  struct Parts;

  const Options options_;
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace lockstep::emulator
