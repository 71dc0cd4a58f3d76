#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "emulator/core/message.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"

namespace lockstep::emulator {

// A message that a subscription has to deliver.
struct Owed {
  std::string subscription;
  uint64_t sequence = 0;
};

// Where a broker writes what shall outlive its process (emulator/store). Each call returns once the
// change is kept, and is made before a client is told of it; one that fails has kept nothing. Any
// thread may call it, with locks of topics and subscriptions held: it calls nobody.
class Journal {
 public:
  virtual ~Journal() = default;

  // Topics go by number: one that is deleted may have subscriptions that still deliver.
  virtual absl::Status SaveTopic(uint64_t number, const google::pubsub::v1::Topic& config,
                                 bool deleted) = 0;
  virtual absl::Status SaveSubscription(const google::pubsub::v1::Subscription& config,
                                        uint64_t topic, uint64_t first_sequence) = 0;
  virtual absl::Status ForgetSubscription(const std::string& name) = 0;
  // What is unacked in it: `unacked`, and everything from `end` on.
  virtual absl::Status SaveSnapshot(const google::pubsub::v1::Snapshot& config, uint64_t topic,
                                    uint64_t end, const std::vector<MessagePtr>& unacked) = 0;
  virtual absl::Status ForgetSnapshot(const std::string& name) = 0;
  // All revisions of a schema, the oldest first; none = it is deleted.
  virtual absl::Status SaveSchema(const std::string& name,
                                  const std::vector<google::pubsub::v1::Schema>& revisions) = 0;

  virtual absl::Status Published(uint64_t topic, const std::vector<MessagePtr>& messages,
                                 const std::vector<Owed>& owed) = 0;
  virtual absl::Status Acked(const std::string& subscription,
                             const std::vector<uint64_t>& sequences) = 0;
  // From now on this is what the subscription has to deliver.
  virtual absl::Status Sought(const std::string& subscription,
                              const std::vector<MessagePtr>& unacked) = 0;
};

// What a journal kept, for a broker that begins.
struct SavedState {
  struct SavedTopic {
    google::pubsub::v1::Topic config;
    uint64_t number = 0;
    uint64_t next_sequence = 1;
    bool deleted = false;
    std::vector<MessagePtr> messages;  // in order
  };
  struct SavedSubscription {
    google::pubsub::v1::Subscription config;
    uint64_t topic = 0;
    uint64_t first_sequence = 1;
    std::unordered_set<uint64_t> unacked;
  };
  struct SavedSnapshot {
    google::pubsub::v1::Snapshot config;
    uint64_t topic = 0;
    uint64_t end = 1;
    std::unordered_set<uint64_t> unacked;  // before `end`
  };
  std::vector<google::pubsub::v1::Schema> schemas;  // revisions, each schema's oldest first
  std::vector<SavedTopic> topics;
  std::vector<SavedSubscription> subscriptions;
  std::vector<SavedSnapshot> snapshots;
};

}  // namespace lockstep::emulator
