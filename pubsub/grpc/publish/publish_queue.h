#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "pubsub/grpc/channel/timers.h"
#include "pubsub/publisher.h"

namespace lockstep::pubsub::grpc_client {

// Sends one Publish request, once. The answer must not come on the caller's thread.
class PublishRpc {
 public:
  using Done = std::function<void(absl::Status, std::vector<std::string> message_ids)>;

  virtual ~PublishRpc() = default;
  // `messages` stay as they are until `done` is called.
  virtual void Send(const std::string& topic, const std::vector<Message>& messages, Millis timeout,
                    Done done) = 0;
};

// Turns calls into requests: as large as the limits allow, several in flight, at most one per
// ordering key. A request that meets a passing fault is sent again as it is, and its keys wait for
// it: that keeps their order. Safe from any thread; results are reported on the threads of the
// PublishRpc and of the timers. Close() ends it.
class PublishQueue {
 public:
  PublishQueue(const PublisherOptions& options, PublishRpc& rpc, Timers& timers);
  ~PublishQueue();

  void Publish(const std::string& topic, std::vector<Message> messages, Publisher::Done done);

  void SetMaxRequests(int requests);

  // Fails what waits with CANCELLED. What is in flight fails when its RPC returns: the owner
  // cancels and awaits those.
  void Close();

 private:
  // One Publish call of the user's; gone when its last message has a result.
  struct Call;
  // A message that waits, or (without its text) one in flight.
  struct Item {
    Message message;
    Call* call = nullptr;
    size_t index = 0;
    SteadyTime deadline;
  };
  struct Key {
    bool in_flight = false;
    int unreported = 0;  // failures that nobody has heard of yet: meanwhile successors abort
    std::deque<Item> waiting;
  };
  struct Topic {
    std::string name;
    std::deque<Item> unblocked;  // came back from Key::waiting: older than `ready`
    std::deque<Item> ready;      // every message enters here
    absl::flat_hash_map<std::string, Key> keys;
    bool listed = false;  // in active_
  };
  struct Request {
    Topic* topic = nullptr;
    std::vector<Message> messages;
    std::vector<std::pair<Call*, size_t>> places;
    absl::flat_hash_set<std::string> keys;
    SteadyTime deadline;
    int attempts = 0;
    Timers::Id retry = 0;
  };
  // What is to be done once the lock is released.
  struct Actions;

  void Accept(Topic& topic, Message message, Call* call, size_t index, SteadyTime deadline,
              const absl::Status& limits, Actions& actions);
  void FillSlots(Actions& actions);
  std::shared_ptr<Request> NextRequest(Topic& topic, Actions& actions);
  bool TakeFrom(std::deque<Item>& items, Topic& topic, Request& request, int64_t& bytes,
                Actions& actions);
  void Settle(Call* call, size_t index, absl::StatusOr<MessageId> result, Actions& actions);
  void Fail(Topic& topic, const std::string& key, Call* call, size_t index,
            const absl::Status& status, Actions& actions);
  void AbortWaiting(Topic& topic, const absl::flat_hash_set<std::string>& keys, Actions& actions);
  void Conclude(Request& request, const absl::Status& status, std::vector<std::string>& ids,
                Actions& actions);
  void Run(Actions actions);
  void Reported(const Call& call);
  void ReportLater(Actions& actions);
  void ReportDeferred();
  void Send(const std::shared_ptr<Request>& request);
  void OnAnswer(const std::shared_ptr<Request>& request, const absl::Status& status,
                std::vector<std::string> ids);
  void Resend(const std::shared_ptr<Request>& request);

  const Millis timeout_;
  const RetryPolicy retry_;
  PublishRpc& rpc_;
  Timers& timers_;

  std::mutex mu_;
  int max_requests_;
  Backoff::Random random_ = Backoff::DefaultRandom();
  std::unordered_map<std::string, std::unique_ptr<Topic>> topics_;
  std::deque<Topic*> active_;                    // those with something to send, in turn
  std::set<std::shared_ptr<Request>> resting_;   // wait for their next try
  std::vector<std::unique_ptr<Call>> deferred_;  // to be reported by the timer below
  Timers::Id deferred_timer_ = 0;
  Timers::Id fired_ = 0;  // of ours the last: its function may still be at work
  int in_flight_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
