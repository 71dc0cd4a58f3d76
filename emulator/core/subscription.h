#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulator/core/ack_id.h"
#include "emulator/core/delivery_queue.h"
#include "emulator/core/filter.h"
#include "emulator/core/timekeeper.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

class Broker;

// What became of the ack ids of one request. Filled with exactly-once delivery only; without it
// nobody is told.
struct AckReport {
  bool exactly_once = false;
  std::vector<std::string> done;
  std::vector<std::string> invalid;
  std::vector<std::string> unordered;  // an older message of the key is not acked yet
  std::vector<std::string> temporary;  // refused by fault injection; the client shall retry

  void Add(AckOutcome outcome, const std::string& id);
};

// What a snapshot keeps of a subscription's state.
struct AckSnapshot {
  uint64_t end = 0;                 // everything from here on is unacked
  std::vector<MessagePtr> unacked;  // before `end`, in order
};

// One subscription: its configuration, and a DeliveryQueue behind a lock of its own. Any thread may
// call it; streams are woken, and dead letters forwarded, after the lock is released. Time that
// passes reaches it through the Timekeeper. Close ends it for good.
class Subscription : public std::enable_shared_from_this<Subscription> {
 public:
  using Wakes = std::vector<std::shared_ptr<Wakeable>>;
  using AckIds = google::protobuf::RepeatedPtrField<std::string>;

  // REQUIRES: `config` was checked by the broker. `number` goes into its ack ids. The
  // broker takes its dead letters, has the journal and removes it when it expires.
  Subscription(pb::Subscription config, std::optional<Filter> filter, uint32_t number,
               uint64_t first_sequence, Timekeeper* timekeeper, Broker* broker);

  pb::Subscription Config() const;
  void SetConfig(const pb::Subscription& config);
  // Called by the topic, with its lock held: first of all, and when it changes.
  void SetTopicRetention(Millis retention);
  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }

  // Does its filter let the message through?
  bool Wants(const Message& message) const;
  // Called by the topic, in order, with its lock held: so the caller does the waking.
  void Append(const std::vector<MessagePtr>& messages, Wakes* wakes);

  absl::StatusOr<Consumer*> Attach(const ConsumerLimits& limits, std::string client_id,
                                   std::weak_ptr<Wakeable> wakeable);
  void Detach(Consumer* consumer);
  absl::StatusOr<std::vector<Delivery>> Take(Consumer* consumer, const Budget& budget);
  void SetAckDeadline(Consumer* consumer, Millis deadline);
  // What a stream is told of the configuration.
  pb::StreamingPullResponse::SubscriptionProperties Properties() const;
  // What is leased to it: messages and bytes.
  std::pair<int64_t, int64_t> OutstandingOf(const Consumer* consumer) const;

  // `past_seek`: ids from before a Seek count too, as they never do with the service.
  absl::StatusOr<AckReport> Acknowledge(const AckIds& ids, bool past_seek = false);
  // `seconds` has one value for each id, or one for all; 0 is a nack.
  absl::StatusOr<AckReport> ModifyAckDeadline(const AckIds& ids, const std::vector<int>& seconds);

  // `refill`: what the topic has kept. `unacked` says what is to be delivered.
  absl::Status Seek(const std::vector<MessagePtr>& refill, const DeliveryQueue::Wanted& unacked);
  // Before anybody knows it: a seek that the journal needs not be told of.
  void Restore(const std::vector<MessagePtr>& messages, const DeliveryQueue::Wanted& unacked);
  absl::StatusOr<AckSnapshot> TakeSnapshot() const;

  // Deleted or detached: every stream ends with `reason`, every later call is refused with it.
  void Close(absl::Status reason);
  void WakeAll();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct ParsedAck {
    AckId id;
    size_t index;  // in its request
  };

  // Applies the change to the queue for each id that is one of ours, then has it kept.
  absl::StatusOr<AckReport> ForEach(const AckIds& ids, bool by_sequence,
                                    const std::function<AckOutcome(const ParsedAck&)>& apply,
                                    const std::function<absl::Status()>& keep);
  Millis TimeToLive() const;  // unused; 0 = for ever
  void Tick(SteadyTime scheduled);
  void Schedule();
  // Unlocks; then wakes, forwards and, perhaps, expires.
  void Finish(Lock lock);

  const std::string name_;
  const uint32_t number_;
  const std::optional<Filter> filter_;
  Timekeeper* const timekeeper_;
  Broker* const broker_;
  const Clock& clock_;

  mutable std::mutex mu_;
  pb::Subscription config_;
  Millis topic_retention_{0};
  DeliveryQueue queue_;
  absl::Status closed_;
  SteadyTime last_active_;
  size_t open_consumers_ = 0;
  std::optional<SteadyTime> scheduled_;
};

}  // namespace lockstep::emulator
