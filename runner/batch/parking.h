#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offsets/state_schema.h"
#include "runner/message/inbound.h"

namespace lockstep::postgres {
class Transaction;
}

namespace lockstep::runner {

// Events that wait in the database for a predecessor. REQUIRES, everywhere: the aggregate's
// key_state row is locked in this transaction.
class Parking {
 public:
  explicit Parking(const offsets::StateSchema& schema);

  enum class Reason { kGap, kPoison };
  struct Parked {
    const Inbound* item;
    Reason reason;
  };
  absl::Status Park(postgres::Transaction& transaction, int generation,
                    const std::vector<Parked>& items) const;

  // The first waiting events of each aggregate in version order: at most `max_events` and about
  // `max_bytes` of payload each, so that memory stays bounded however many wait.
  absl::StatusOr<std::vector<Inbound>> Load(postgres::Transaction& transaction, int generation,
                                            const std::vector<std::string>& keys, int max_events,
                                            int64_t max_bytes) const;

  absl::Status Remove(postgres::Transaction& transaction, int generation,
                      const std::vector<const Inbound*>& items) const;

 private:
  const offsets::StateStatement park_;
  const offsets::StateStatement load_;
  const offsets::StateStatement remove_;
};

}  // namespace lockstep::runner
