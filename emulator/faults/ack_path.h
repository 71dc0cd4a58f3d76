#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "emulator/core/subscription.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/faults.h"

namespace lockstep::emulator {

// The way of acks to their subscription, past fault injection: drops and delays as the faults say.
// With exactly-once delivery, where the client is told, a dropped or delayed ack is a temporary
// failure.
absl::StatusOr<AckReport> AcknowledgePastFaults(Faults* faults, Timekeeper* timekeeper,
                                                const std::shared_ptr<Subscription>& subscription,
                                                const Subscription::AckIds& ids);

}  // namespace lockstep::emulator
