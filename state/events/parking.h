#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/received.h"
#include "state/schema.h"

namespace lockstep::state {

// Events that wait in the database for a predecessor. REQUIRES, everywhere: the aggregate's
// key_state row is locked in this transaction.
class Parking {
 public:
  explicit Parking(const Schema& schema);

  enum class Reason { kGap, kPoison };
  struct Parked {
    const envelope::Received* item;
    Reason reason;
  };
  absl::Status Park(postgres::Transaction& transaction, int generation,
                    const std::vector<Parked>& items) const;

  // The first waiting events of each aggregate in version order: at most `max_events` and about
  // `max_bytes` of payload each, so that memory stays bounded however many wait.
  absl::StatusOr<std::vector<envelope::Received>> Load(postgres::Transaction& transaction,
                                                       int generation,
                                                       const std::vector<std::string>& keys,
                                                       int max_events, int64_t max_bytes) const;

  // The lowest version of the aggregate that waits and is past `after`.
  absl::StatusOr<std::optional<int64_t>> Lowest(postgres::Transaction& transaction, int generation,
                                                const std::string& key, int64_t after) const;

  // What waits of one aggregate, in version order, without the payloads: version, event_id,
  // event_type, message_id, reason, publish_time, parked_at. Needs no lock.
  absl::StatusOr<postgres::Result> List(postgres::Connection& connection, int generation,
                                        const std::string& key, int limit) const;

  absl::Status Remove(postgres::Transaction& transaction, int generation,
                      const std::vector<const envelope::Received*>& items) const;

 private:
  const Schema schema_;
  const Statement park_;
  const Statement load_;
  const Statement remove_;
};

}  // namespace lockstep::state
