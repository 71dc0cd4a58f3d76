#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "pubsub/publisher.h"

namespace lockstep::pubsub::google_cloud {

// Turns calls into bursts: messages of one ordering key (google-cloud-cpp never mixes keys in a
// request), as many as a request holds, at most one burst of a key under way. After a failure what
// waits behind it is aborted, as the port says. Messages without a key share a lane that may have
// several bursts under way. Safe from any thread; Close ends it.
class PublishLanes {
 public:
  using Results = std::vector<absl::StatusOr<MessageId>>;
  struct Burst {
    std::string topic;
    std::string key;
    std::vector<Message> messages;
  };
  // One result per message; never on the thread that sends.
  using Answer = std::function<void(Results)>;
  using Send = std::function<void(Burst, Answer)>;
  // Runs a function on a transport thread.
  using Post = std::function<void(std::function<void()>)>;

  PublishLanes(const PublisherOptions& options, Send send, Post post);

  void Publish(const std::string& topic, std::vector<Message> messages, Publisher::Done done);

  void SetMaxRequests(int requests);

  // Fails what waits with CANCELLED, and later what is under way unless it succeeds.
  void Close();
  bool Idle() const;  // nothing is under way

 private:
  struct Lane;
  struct Call {
    Results results;
    size_t open = 0;
    Publisher::Done done;
    std::vector<Lane*> failed;  // keyed lanes in which this call has failures
  };
  struct Item {
    Message message;
    std::shared_ptr<Call> call;  // shared by the call's messages
    size_t index = 0;
    SteadyTime deadline;
  };
  struct Lane {
    std::string topic;
    std::string key;
    std::deque<Item> waiting;
    int under_way = 0;
    int unreported = 0;  // failures that nobody has heard of yet: meanwhile successors abort
    bool listed = false;
  };
  // What is to be done once the lock is released.
  struct Actions {
    struct Sending {
      Burst burst;
      Lane* lane;
      std::vector<Item> items;  // without their messages
    };
    std::vector<Sending> send;
    std::vector<std::shared_ptr<Call>> report;
  };

  Lane& FindLane(const std::string& topic, const std::string& key);
  void Accept(Lane& lane, Item item, const absl::Status& limits, Actions& actions);
  void List(Lane& lane);
  void FillSlots(Actions& actions);
  bool TakeBurst(Lane& lane, Actions& actions);
  void Settle(Item& item, absl::StatusOr<MessageId> result, Actions& actions);
  void Fail(Lane& lane, Item& item, const absl::Status& status, Actions& actions);
  void AbortWaiting(Lane& lane, const absl::Status& status, Actions& actions);
  void Forget(Lane& lane);
  void OnAnswer(Lane* lane, std::vector<Item>& items, Results results);
  void Run(Actions actions);
  void Report(const std::vector<std::shared_ptr<Call>>& calls);
  void Reported(const Call& call);

  const Millis timeout_;
  const Send send_;
  const Post post_;

  mutable std::mutex mu_;
  int max_requests_;
  std::unordered_map<std::string, Lane> lanes_;  // by topic and key; forgotten when idle
  std::deque<Lane*> ready_;
  int under_way_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::pubsub::google_cloud
