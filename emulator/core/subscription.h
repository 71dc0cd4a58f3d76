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

// What became of the ack ids of one request. Filled with exactly-once delivery only; without it
// nobody is told.
struct AckReport {
  bool exactly_once = false;
  std::vector<std::string> done;
  std::vector<std::string> invalid;
  std::vector<std::string> unordered;  // an older message of the key is not acked yet
};

// Everything that a snapshot or a seek needs of a subscription's state.
struct AckSnapshot {
  uint64_t end = 0;                 // everything from here on is unacked
  std::vector<MessagePtr> unacked;  // before `end`, in order
};

class Subscription;

// Where a subscription's dead letters go and who buries it when it expires. Called without the
// subscription's lock, except CanForward.
class SubscriptionOffice {
 public:
  virtual ~SubscriptionOffice() = default;
  virtual bool CanForward(const std::string& topic) = 0;
  virtual void Forward(const google::pubsub::v1::Subscription& from, const std::string& topic,
                       const std::vector<DeadLetter>& letters) = 0;
  virtual void Expired(const std::string& name) = 0;
};

// One subscription: its configuration, and a DeliveryQueue behind a lock of its own. Any thread may
// call it; streams are woken, and dead letters forwarded, after the lock is released. Time that
// passes reaches it through the Timekeeper. Close ends it for good.
class Subscription : public std::enable_shared_from_this<Subscription> {
 public:
  using Proto = google::pubsub::v1::Subscription;
  using Wakes = std::vector<std::shared_ptr<Wakeable>>;
  using AckIds = google::protobuf::RepeatedPtrField<std::string>;

  // REQUIRES: `config` was checked (subscription_config.h). `number` goes into its ack ids.
  Subscription(Proto config, std::optional<Filter> filter, uint32_t number, uint64_t first_sequence,
               Millis topic_retention, Timekeeper* timekeeper, SubscriptionOffice* office);

  Proto Config() const;
  void SetConfig(const Proto& config);
  // Called by the topic, with its lock held.
  void SetTopicRetention(Millis retention);
  uint32_t number() const { return number_; }

  // Called by the topic, in order, with its lock held: so the caller does the waking.
  void Append(const std::vector<MessagePtr>& messages, Wakes* wakes);

  absl::StatusOr<Consumer*> Attach(const ConsumerLimits& limits, std::string client_id,
                                   std::weak_ptr<Wakeable> wakeable);
  void Detach(Consumer* consumer);
  absl::StatusOr<std::vector<Delivery>> Take(Consumer* consumer, const Budget& budget);
  void SetAckDeadline(Consumer* consumer, Millis deadline);
  struct Properties {
    bool exactly_once = false;
    bool ordered = false;
  };
  Properties GetProperties() const;
  // What is leased to it: messages and bytes.
  std::pair<int64_t, int64_t> OutstandingOf(const Consumer* consumer) const;

  absl::StatusOr<AckReport> Acknowledge(const AckIds& ids);
  // `seconds` has one value for each id, or one for all; 0 is a nack.
  absl::StatusOr<AckReport> ModifyAckDeadline(const AckIds& ids, const std::vector<int>& seconds);

  // `refill`: what the topic has kept.
  absl::Status SeekTo(WallTime time, const std::vector<MessagePtr>& refill);
  absl::Status SeekTo(const AckSnapshot& snapshot, const std::vector<MessagePtr>& refill);
  absl::StatusOr<AckSnapshot> TakeSnapshot() const;

  // Deleted or detached: every stream ends with `reason`, every later call is refused with it.
  void Close(absl::Status reason);
  void WakeAll();
  // Schedules what is due first. To be called once, when it is in its topic.
  void StartTime();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct ParsedAck {
    AckId id;
    const std::string* text;
    size_t index;
  };

  bool Wanted(const Message& message) const;
  std::vector<ParsedAck> Parse(const AckIds& ids, AckReport* report) const;
  void Record(AckOutcome outcome, const std::string& id, AckReport* report) const;
  void Tick(SteadyTime scheduled);
  void Schedule();
  // Unlocks; then wakes, forwards and, perhaps, expires.
  void Finish(Lock lock);

  const uint32_t number_;
  const std::optional<Filter> filter_;
  Timekeeper* const timekeeper_;
  SubscriptionOffice* const office_;
  const Clock& clock_;

  mutable std::mutex mu_;
  Proto config_;
  Millis topic_retention_;
  DeliveryQueue queue_;
  absl::Status closed_;
  SteadyTime last_active_;
  size_t open_consumers_ = 0;
  std::optional<SteadyTime> scheduled_;
};

}  // namespace lockstep::emulator
