#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "pubsub/publisher.h"
#include "pubsub/user_call.h"

namespace lockstep::pubsub {

// What both transports do with a Publish call: it is cut into requests, as large as the limits
// allow; so many requests of all calls are under way at a time; of a call, those that share keys go
// out one after another, and what stands behind a failure in its key is aborted. Calls know nothing
// of each other: see the port. Safe from any thread; results are reported on the threads that
// answer and on those of `post`. Close ends it.
class PublishCalls : public Publisher {
 public:
  using Results = std::vector<absl::StatusOr<MessageId>>;
  struct Request {
    std::string topic;
    std::vector<Message> messages;
    SteadyTime deadline;
  };
  // One result per message; never on the thread that sends.
  using Answer = std::function<void(Results)>;
  using Send = std::function<void(std::shared_ptr<const Request>, Answer)>;
  // Runs a function on a transport thread.
  using Post = std::function<void(std::function<void()>)>;
  enum class Keys {
    kMixed,  // a request may hold messages of any keys
    kApart,  // … of one key, or of none
  };

  PublishCalls(const PublisherOptions& options, Keys keys, Send send, Post post);

  void Publish(const std::string& topic, std::vector<Message> messages, Done done) override;
  void SetMaxRequests(int requests) override;

  // Fails what waits with CANCELLED, and later what is under way unless it succeeds: the owner
  // cancels and awaits that. Returns when no posted result is being reported any more.
  void Close();
  bool Idle() const;  // nothing is under way

 private:
  using Call = UserCall<absl::StatusOr<MessageId>>;
  using CallPtr = std::shared_ptr<Call>;  // shared by its sequences
  // Messages of a call that must not overtake each other, as far as they wait.
  struct Sequence {
    CallPtr call;
    std::string topic;
    SteadyTime deadline;
    std::deque<std::pair<Message, size_t>> waiting;  // with their places in the call
  };
  using SequencePtr = std::shared_ptr<Sequence>;  // shared with the answer to its request
  // What is to be done once the lock is released.
  struct Actions {
    struct Sending {
      SequencePtr sequence;
      std::shared_ptr<const Request> request;
      std::vector<size_t> places;
    };
    std::vector<Sending> send;
    std::vector<CallPtr> report;
  };

  void FillSlots(Actions& actions);
  void Take(const SequencePtr& sequence, Actions& actions);
  void FailWaiting(Sequence& sequence, const absl::Status& status, Actions& actions);
  void Finish(const CallPtr& call, size_t place, absl::StatusOr<MessageId> result,
              Actions& actions);
  void OnAnswer(const Actions::Sending& sent, Results results);
  void Run(const Actions& actions);
  static void Report(const std::vector<CallPtr>& calls);

  const Millis timeout_;
  const Keys keys_;
  const Send send_;
  const Post post_;

  mutable std::mutex mu_;
  std::condition_variable reported_;
  int max_requests_;
  std::deque<SequencePtr> ready_;  // wait for a slot, in turn
  int under_way_ = 0;
  int posted_ = 0;  // reports
  bool closed_ = false;
};

}  // namespace lockstep::pubsub
