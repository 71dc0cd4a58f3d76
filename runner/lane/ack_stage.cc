#include "runner/lane/ack_stage.h"

#include <algorithm>
#include <utility>

namespace lockstep::runner {

void AckStage::Ack(std::vector<pubsub::AckToken> tokens, SteadyTime commit_began) {
  if (tokens.empty()) return;
  if (Clock::System().Steady() - commit_began > fence_) return GiveBack(std::move(tokens));
  GroupMetrics* const metrics = &metrics_;  // the answer may come after this object is gone
  receiver_.Acknowledge(std::move(tokens), [metrics](std::vector<absl::Status> answers) {
    // A failed ack needs nothing: the message comes again and the inbox knows it.
    const auto ok = std::count_if(answers.begin(), answers.end(),
                                  [](const absl::Status& status) { return status.ok(); });
    metrics->Acked(ok, static_cast<int64_t>(answers.size()) - ok);
  });
}

void AckStage::GiveBack(std::vector<pubsub::AckToken> tokens) {
  if (tokens.empty()) return;
  metrics_.Nacked(static_cast<int64_t>(tokens.size()));
  receiver_.Release(std::move(tokens), [](const std::vector<absl::Status>&) {});
}

}  // namespace lockstep::runner
