#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/strong_id.h"
#include "state/schema.h"

namespace lockstep::state {

// How far a subscription has been worked through: forward means later by (publish_time,
// message_id). Pub/Sub has no other order between messages.
struct Position {
  WallTime publish_time;
  MessageId message_id;

  friend auto operator<=>(const Position&, const Position&) = default;
};

// What one lane has committed.
struct LaneOffset {
  ConsumerGroup group;
  std::string instance;
  int lane = 0;
  std::string subscription;
  Position position;
  int64_t epoch = 0;
  Millis lag{0};  // from publish to commit, of that message
};

// The group's: the least of its live lanes'.
struct GroupOffset {
  std::string subscription;
  Position position;
  int64_t epoch = 0;
  Millis lag{0};  // the greatest of the lanes'
  WallTime updated_at;
  std::string updated_by;
};

// Who moved an offset by hand, and why; goes into the audit.
struct ResetRecord {
  ConsumerGroup group;
  std::string subscription;
  std::optional<Position> to;  // none = the group starts without an offset
  int64_t epoch = 0;           // the one that the reset begins
  std::string operator_name;
  std::string reason;
  std::string action = "offsets.reset";
  std::string mode = "keep";  // keep, empty, overwrite
  std::string snapshot;       // what it seeks to, if that is no time
};

// What an instance has stored, and the epoch that the group stands in.
struct InstanceOffsets {
  int64_t epoch = 0;
  std::string token;
  std::map<int, WallTime> lanes;  // publish time, by lane
};

// Where the offsets of consumer groups are kept. Everything happens in the caller's transaction, so
// that an offset commits with what it stands for; one that keeps them elsewhere takes none. Safe
// from any thread, each with a transaction of its own.
class OffsetProvider {
 public:
  virtual ~OffsetProvider() = default;

  // Nothing when the group has committed nothing yet.
  virtual absl::StatusOr<std::optional<GroupOffset>> Load(postgres::Transaction* transaction,
                                                          const ConsumerGroup& group) = 0;
  // Forward only: the same position or an older one succeeds and changes nothing.
  virtual absl::Status Save(postgres::Transaction* transaction, const LaneOffset& offset) = 0;
  // Puts every lane of the group to one position, backwards too, and writes the audit.
  virtual absl::Status Reset(postgres::Transaction* transaction, const ResetRecord& record) = 0;
};

// In the service's state schema: the offsets of every lane, and the group's out of them. REQUIRES:
// a transaction in every call that takes one.
class Offsets : public OffsetProvider {
 public:
  explicit Offsets(const Schema& schema);

  absl::StatusOr<std::optional<GroupOffset>> Load(postgres::Transaction* transaction,
                                                  const ConsumerGroup& group) override;
  absl::Status Save(postgres::Transaction* transaction, const LaneOffset& offset) override;
  absl::Status Reset(postgres::Transaction* transaction, const ResetRecord& record) override;

  // Whether the time lies past everything that this read model ever was at: two resets to the
  // earliest, one after the other, are not forward.
  absl::StatusOr<bool> IsForward(postgres::Transaction& transaction, const ConsumerGroup& group,
                                 WallTime time) const;

  // Makes them the other group's, under its epoch.
  absl::Status Take(postgres::Transaction& transaction, const ConsumerGroup& group,
                    const ConsumerGroup& from) const;
  absl::Status ForgetAll(postgres::Transaction& transaction, const ConsumerGroup& group) const;

  // Nothing when there is no such group.
  absl::StatusOr<std::optional<InstanceOffsets>> OfInstance(postgres::Connection& connection,
                                                            const ConsumerGroup& group,
                                                            const std::string& instance) const;

  // For those who look: subscription, message_id, publish_time, epoch, lag_ms, updated_at and
  // updated_by; of the group (a row at most), and of each lane with instance and lane before.
  absl::StatusOr<postgres::Result> OfGroup(postgres::Connection& connection,
                                           const ConsumerGroup& group) const;
  absl::StatusOr<postgres::Result> OfLanes(postgres::Connection& connection,
                                           const ConsumerGroup& group,
                                           std::optional<int> limit = std::nullopt) const;

 private:
  const Schema schema_;
  const Statement save_;
};

}  // namespace lockstep::state
