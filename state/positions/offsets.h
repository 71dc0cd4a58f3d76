#pragma once

#include <map>
#include <optional>
#include <string>

#include "state/positions/offset_provider.h"
#include "state/schema.h"

namespace lockstep::state {

// What an instance has stored, and the epoch that the group stands in.
struct InstanceOffsets {
  int64_t epoch = 0;
  std::string token;
  std::map<int, int64_t> commits;  // by lane
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

  // The newest publish time of all lanes; nothing when there is no offset.
  absl::StatusOr<std::optional<WallTime>> Newest(postgres::Transaction& transaction,
                                                 const ConsumerGroup& group) const;

  // Makes them the other group's, under its epoch.
  absl::Status Take(postgres::Transaction& transaction, const ConsumerGroup& group,
                    const ConsumerGroup& from) const;
  absl::Status ForgetAll(postgres::Transaction& transaction, const ConsumerGroup& group) const;

  // Epoch 0 when there is no such group.
  absl::StatusOr<InstanceOffsets> OfInstance(postgres::Connection& connection,
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
