#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "platform/clock.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

// Stands between the streams and the hand-over. With exactly-once delivery what a stream brings is
// ours only while its ack id is the last one: so each response is confirmed first, by setting its
// deadline anew, and what the server refuses (it goes to somebody else, or comes again) is not
// handed over at all. Without it, everything passes through at once.
// Batches leave in the order in which they came, one at a time, on gRPC's threads. Safe from any
// thread; the owner awaits the RPCs before this object goes.
class Receipts {
 public:
  struct Batch {
    std::vector<Delivery> held;
    std::vector<Delivery> refused;
    SteadyTime received;
  };
  using HandOver = std::function<void(Batch)>;  // must not throw

  Receipts(AckRpc& rpc, Millis ack_deadline, HandOver hand_over);

  void Add(std::vector<Delivery> deliveries, bool confirm);

  // Waits until everything has been handed over, at most so long.
  void Flush(Millis at_most);

 private:
  struct Waiting {
    std::vector<Delivery> deliveries;
    SteadyTime received;
    size_t open = 0;  // requests without an answer
    absl::flat_hash_set<std::string> refused;
  };

  void OnAnswer(Waiting& waiting, const AckAnswer& answer);
  void HandOverReady();
  static Batch Split(Waiting waiting);

  AckRpc& rpc_;
  const int seconds_;
  const HandOver hand_over_;

  std::mutex mu_;
  std::condition_variable empty_;
  std::deque<std::unique_ptr<Waiting>> queue_;  // answers know them by their address
  bool handing_over_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
