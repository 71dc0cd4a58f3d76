#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "platform/clock.h"
#include "pubsub/grpc/channel/timers.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/grpc/receive/flow_control.h"
#include "pubsub/receiver.h"

namespace lockstep::pubsub::grpc_client {

// Knows every message in hand and extends its lease: batched ModifyAckDeadline calls whenever less
// than half of a lease is left, until max_extension after the delivery. Warns in the log at half of
// that; reports a lease that lapsed or that the server refused to extend. Works on the timers'
// thread; safe from any thread; Stop ends it.
class LeaseKeeper {
 public:
  using OnLost = std::function<void(std::vector<AckToken>, Load)>;

  LeaseKeeper(const ReceiverOptions& options, AckRpc& rpc, Timers& timers, const Clock& clock,
              OnLost on_lost);
  ~LeaseKeeper() { Stop(); }

  void Start();
  void Stop();

  void Add(const std::vector<Delivery>& deliveries, SteadyTime received);
  // An ack is under way: the lease is kept until Remove, and never reported as lost. Returns how
  // much is no longer in the user's hands.
  Load BeginAck(const std::vector<AckToken>& tokens);
  void EndAck(const std::vector<std::string>& ids);  // the end of what BeginAck began
  Load Remove(const std::vector<AckToken>& tokens);  // both at once

  void Tick();  // what the timer does

 private:
  struct Lease {
    SteadyTime delivered;
    SteadyTime expires;
    int64_t bytes = 0;
    bool acking = false;
    bool extending = false;  // a request is under way
    bool warned = false;
  };
  struct Lost {
    std::vector<AckToken> tokens;
    Load load;
  };
  // What one look at the leases found.
  struct Findings {
    std::map<int, std::vector<std::string>> extend;  // by seconds
    Lost lost;
    int64_t warned = 0;
  };
  using Leases = absl::flat_hash_map<std::string, Lease>;

  void Look(SteadyTime now, Findings& findings);
  void Lose(Leases::iterator lease, Lost& lost);
  void Extend(std::vector<std::string> ids, int seconds, SteadyTime now);
  void OnExtended(const AckAnswer& answer, SteadyTime expires);

  const ReceiverOptions options_;
  const Millis period_;
  AckRpc& rpc_;
  const Clock& clock_;
  const OnLost on_lost_;

  std::mutex mu_;
  Leases leases_;
  Timer timer_;
  bool stopped_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
