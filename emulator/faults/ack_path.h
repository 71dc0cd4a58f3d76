#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "emulator/core/subscription.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/faults.h"

namespace lockstep::emulator {

struct AckAnswer {
  AckReport report;
  std::vector<std::string> temporary;  // refused by fault injection; the client shall retry
};

// The way of an acknowledgement to its subscription, past fault injection. Any thread.
class AckPath {
 public:
  AckPath(Faults* faults, Timekeeper* timekeeper) : faults_(faults), timekeeper_(timekeeper) {}

  // Drops and delays as the faults say. With exactly-once delivery, where the client is told, a
  // dropped or delayed ack is a temporary failure.
  absl::StatusOr<AckAnswer> Acknowledge(const std::shared_ptr<Subscription>& subscription,
                                        const Subscription::AckIds& ids);

 private:
  Faults* const faults_;
  Timekeeper* const timekeeper_;
};

}  // namespace lockstep::emulator
