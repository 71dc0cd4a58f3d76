#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::postgres {
class Transaction;
}

// Where offsets are kept, for a service that keeps its own. Public: docs/embedding.md.
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

}  // namespace lockstep::state
