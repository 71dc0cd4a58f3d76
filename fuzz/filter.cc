#include "emulator/core/filter.h"

#include "fuzz/fuzz_target.h"
#include "google/pubsub/v1/pubsub.pb.h"

using google::pubsub::v1::PubsubMessage;
using lockstep::emulator::Filter;

namespace {

std::vector<PubsubMessage> Messages() {
  std::vector<PubsubMessage> messages(3);
  (*messages[1].mutable_attributes())["a"] = "x";
  (*messages[2].mutable_attributes())["a"] = "";
  (*messages[2].mutable_attributes())["name"] = "xyz";
  return messages;
}

}  // namespace

// A subscription's filter: it is refused, or it says yes or no, and its negation the opposite.
LOCKSTEP_FUZZ_TARGET(filter) {
  static const std::vector<PubsubMessage>& messages = *new std::vector<PubsubMessage>(Messages());
  const auto filter = Filter::Parse(input);
  if (!filter.ok()) return;
  LOCKSTEP_HOLDS(input.size() <= Filter::kMaxBytes);
  const auto negated = Filter::Parse("NOT (" + std::string(input) + ")");
  for (const PubsubMessage& message : messages) {
    const bool matches = filter->Matches(message);
    if (negated.ok()) LOCKSTEP_HOLDS(negated->Matches(message) == !matches);
  }
}
