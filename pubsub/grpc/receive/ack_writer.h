#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "pubsub/grpc/channel/timers.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/receiver.h"
#include "pubsub/user_call.h"

namespace lockstep::pubsub::grpc_client {

// Sends acks (or, as a second instance, releases) in the order of the calls: one request in flight,
// and while it is, the next one gathers. Passing faults are retried until the timeout of the
// tokens; what an exactly-once subscription refuses for good is reported as FAILED_PRECONDITION.
// Safe from any thread; results come on transport threads. Flush and Close end it.
class AckWriter {
 public:
  enum class Kind { kAck, kRelease };
  // Told which ids have a result, before that is reported.
  using HaveResult = std::function<void(const std::vector<std::string>& ids)>;
  // Told which ones were given up when their time was over.
  using Late = std::function<void(std::vector<AckToken> tokens)>;

  AckWriter(Kind kind, AckRpc& rpc, Millis timeout, Timers& timers,
            HaveResult have_result = nullptr, Late late = nullptr);
  ~AckWriter() { Close(); }

  void Add(std::vector<AckToken> tokens, Receiver::Done done);

  // Waits until everything is answered, at most so long.
  void Flush(Millis at_most);
  // Fails what is left with CANCELLED, and everything that comes later. The owner cancels the RPC
  // in flight and awaits it before this object goes.
  void Close();

 private:
  using Call = UserCall<absl::Status>;
  using CallPtr = std::shared_ptr<Call>;  // shared by its items
  struct Item {
    std::string id;
    CallPtr call;
    size_t index = 0;
    SteadyTime deadline;
    int attempts = 0;
  };
  struct Finished {
    std::vector<CallPtr> calls;
    std::vector<std::string> ids;
    std::vector<AckToken> late;
  };

  void Finish(Item& item, absl::Status status, Finished& finished);
  void SendNext();
  std::vector<std::string> TakeRequest(SteadyTime now, Finished& finished);
  void OnAnswer(AckAnswer answer);
  void Conclude(std::vector<Item> items, const AckAnswer& answer, Finished& finished);
  void OnRetryTimer();
  void Report(Finished finished);
  void ReportDeferred();

  const Kind kind_;
  AckRpc& rpc_;
  const Millis timeout_;
  const HaveResult have_result_;
  const Late late_;

  std::mutex mu_;
  std::condition_variable idle_;
  Backoff::Random random_ = Backoff::DefaultRandom();
  std::deque<Item> queue_;
  std::deque<Item> resting_;     // to be sent again when retry_timer_ fires
  std::vector<Item> in_flight_;  // without their ids: those travel with the request
  // A request was refused without a word about which id: its ids, now the first of the queue, are
  // sent in smaller requests until the culprit stands alone.
  size_t suspects_ = 0;
  size_t split_ = 0;
  size_t open_ = 0;  // items without a result
  Timer retry_timer_;
  std::vector<CallPtr> deferred_;  // to be reported when deferred_timer_ fires
  Timer deferred_timer_;
  bool sending_ = false;
  bool closed_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
