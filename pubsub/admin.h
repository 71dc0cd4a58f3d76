#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::pubsub {

struct SchemaSettings {
  std::string schema;  // full name; empty = none
  enum class Encoding { kBinary, kJson } encoding = Encoding::kBinary;
};

struct Topic {
  std::string name;
  std::map<std::string, std::string> labels;
  std::optional<Millis> retention;  // at most 31 days
  SchemaSettings schema;
};

struct Subscription {
  std::string name;
  std::string topic;
  Millis ack_deadline{10'000};
  bool ordering = false;
  bool exactly_once = false;
  bool retain_acked = false;
  Millis retention{7LL * 24 * 3600 * 1000};
  std::string filter;
  std::string dead_letter_topic;  // empty = none
  int max_delivery_attempts = 0;  // 0 = the server's default
  std::optional<Millis> min_backoff;
  std::optional<Millis> max_backoff;
  std::optional<Millis> topic_retention;  // output only
  bool detached = false;                  // output only
  std::map<std::string, std::string> labels;
};

struct Snapshot {
  std::string name;
  std::string topic;
  WallTime expires;
  std::map<std::string, std::string> labels;
};

struct Schema {
  std::string name;
  std::string definition;  // protobuf source
};

// The administrative part of the port. Blocking calls with a deadline; idempotent ones are retried
// while the server can't be reached. Safe from any thread. Statuses are the server's own:
// NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, UNIMPLEMENTED (an emulator that can't), …
class Admin {
 public:
  virtual ~Admin() = default;

  virtual absl::StatusOr<Topic> CreateTopic(const Topic& topic) = 0;
  virtual absl::StatusOr<Topic> GetTopic(const std::string& name) = 0;
  // `paths` as in google.pubsub.v1: "message_retention_duration", "schema_settings", "labels".
  virtual absl::StatusOr<Topic> UpdateTopic(const Topic& topic,
                                            const std::vector<std::string>& paths) = 0;
  virtual absl::StatusOr<std::vector<Topic>> ListTopics(const std::string& project) = 0;
  virtual absl::Status DeleteTopic(const std::string& name) = 0;

  virtual absl::StatusOr<Subscription> CreateSubscription(const Subscription& subscription) = 0;
  virtual absl::StatusOr<Subscription> GetSubscription(const std::string& name) = 0;
  virtual absl::StatusOr<Subscription> UpdateSubscription(
      const Subscription& subscription, const std::vector<std::string>& paths) = 0;
  virtual absl::StatusOr<std::vector<Subscription>> ListSubscriptions(
      const std::string& project) = 0;
  virtual absl::Status DeleteSubscription(const std::string& name) = 0;
  virtual absl::Status DetachSubscription(const std::string& name) = 0;

  virtual absl::StatusOr<Snapshot> CreateSnapshot(
      const std::string& name, const std::string& subscription,
      const std::map<std::string, std::string>& labels) = 0;
  virtual absl::StatusOr<Snapshot> GetSnapshot(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<Snapshot>> ListSnapshots(const std::string& project) = 0;
  virtual absl::Status DeleteSnapshot(const std::string& name) = 0;
  virtual absl::Status SeekToTime(const std::string& subscription, WallTime time) = 0;
  virtual absl::Status SeekToSnapshot(const std::string& subscription,
                                      const std::string& snapshot) = 0;

  virtual absl::StatusOr<Schema> CreateSchema(const Schema& schema) = 0;
  virtual absl::StatusOr<Schema> GetSchema(const std::string& name) = 0;
  virtual absl::StatusOr<Schema> CommitSchema(const Schema& schema) = 0;
  virtual absl::Status DeleteSchema(const std::string& name) = 0;
};

}  // namespace lockstep::pubsub
