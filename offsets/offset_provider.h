#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "state/positions/position.h"

namespace lockstep::postgres {
class Transaction;
}

// Where offsets are kept, for a service that keeps its own. Public: docs/embedding.md.
namespace lockstep::offsets {

using state::GroupOffset;
using state::LaneOffset;
using state::Position;
using state::ResetRecord;

// Where the offsets of consumer groups are kept. Everything happens in the caller's transaction, so
// that an offset commits with what it stands for; the memory implementation takes none. Safe from
// any thread, each with a transaction of its own.
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

}  // namespace lockstep::offsets
