#include "emulator/faults/ack_path.h"

#include <utility>

#include "platform/status.h"

namespace lockstep::emulator {

absl::StatusOr<AckReport> AcknowledgePastFaults(Faults* faults, Timekeeper* timekeeper,
                                                const std::shared_ptr<Subscription>& subscription,
                                                const Subscription::AckIds& ids) {
  const FaultOptions options = faults->options();
  if (options.drop_acks <= 0 && options.delay_acks <= 0) return subscription->Acknowledge(ids);
  Subscription::AckIds now;
  Subscription::AckIds later;
  std::vector<std::string> refused;
  for (const std::string& id : ids) {
    const Faults::AckFate fate = faults->FateOfAck();
    if (fate == Faults::AckFate::kApply) {
      now.Add(std::string(id));
      continue;
    }
    if (fate == Faults::AckFate::kDelay) later.Add(std::string(id));
    refused.push_back(id);
  }
  ASSIGN_OR_RETURN(AckReport report, subscription->Acknowledge(now));
  if (report.exactly_once) {
    report.temporary = std::move(refused);
  } else if (!later.empty()) {
    // Worse than the service: whoever waits for acks before a Seek can show that it does.
    timekeeper->At(timekeeper->clock().Steady() + options.ack_delay, [subscription, later] {
      (void)subscription->Acknowledge(later, /*past_seek=*/true);
    });
  }
  return report;
}

}  // namespace lockstep::emulator
