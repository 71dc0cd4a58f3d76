#include "emulator/faults/ack_path.h"

#include <utility>

namespace lockstep::emulator {

absl::StatusOr<AckAnswer> AckPath::Acknowledge(const std::shared_ptr<Subscription>& subscription,
                                               const Subscription::AckIds& ids) {
  AckAnswer answer;
  if (!faults_->touches_acks()) {
    auto report = subscription->Acknowledge(ids);
    if (!report.ok()) return report.status();
    answer.report = *std::move(report);
    return answer;
  }
  Subscription::AckIds now;
  Subscription::AckIds later;
  std::vector<std::string> refused;
  for (const std::string& id : ids) {
    switch (faults_->FateOfAck()) {
      case Faults::AckFate::kApply:
        now.Add(std::string(id));
        break;
      case Faults::AckFate::kDelay:
        later.Add(std::string(id));
        refused.push_back(id);
        break;
      case Faults::AckFate::kDrop:
        refused.push_back(id);
        break;
    }
  }
  auto report = subscription->Acknowledge(now);
  if (!report.ok()) return report.status();
  answer.report = *std::move(report);
  if (answer.report.exactly_once) {
    answer.temporary = std::move(refused);
  } else if (!later.empty()) {
    timekeeper_->At(timekeeper_->clock().Steady() + faults_->ack_delay(),
                    [subscription, later] { (void)subscription->Acknowledge(later); });
  }
  return answer;
}

}  // namespace lockstep::emulator
