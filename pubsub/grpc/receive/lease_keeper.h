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
#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

// Knows every message in hand and extends its lease: batched ModifyAckDeadline calls whenever less
// than half of a lease is left, until max_extension after the delivery. Warns in the log at half of
// that; reports a lease that lapsed or that the server refused to extend. Works on the timers'
// thread; safe from any thread; Stop ends it.
class LeaseKeeper {
 public:
  struct Options {
    std::string subscription;  // for the log
    Millis ack_deadline{60'000};
    Millis max_extension{60 * 60'000};
  };
  struct InHand {
    int64_t messages = 0;
    int64_t bytes = 0;
  };
  using Lost = std::function<void(std::vector<AckToken>, InHand)>;

  LeaseKeeper(Options options, AckRpc& rpc, Timers& timers, const Clock& clock, Lost lost);
  ~LeaseKeeper();

  void Start();
  void Stop();

  void Add(const std::vector<Delivery>& deliveries, SteadyTime received);
  // An ack is under way: the lease is kept until Remove, and never reported as lost. Returns how
  // much is no longer in the user's hands.
  InHand BeginAck(const std::vector<AckToken>& tokens);
  InHand Remove(const std::vector<AckToken>& tokens);
  void EndAck(const std::vector<std::string>& ids);  // the end of what BeginAck began

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
  // What one look at the leases found.
  struct Findings;

  void Look(SteadyTime now, Findings& findings);
  void Extend(std::vector<std::string> ids, int seconds, SteadyTime now);
  void OnExtended(AckAnswer answer, SteadyTime expires);
  void Schedule();

  const Options options_;
  const Millis period_;
  AckRpc& rpc_;
  Timers& timers_;
  const Clock& clock_;
  const Lost lost_;

  std::mutex mu_;
  absl::flat_hash_map<std::string, Lease> leases_;
  Timers::Id timer_ = 0;
  bool stopped_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
