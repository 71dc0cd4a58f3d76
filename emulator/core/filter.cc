#include "emulator/core/filter.h"

#include <algorithm>

#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

using google::pubsub::v1::PubsubMessage;

bool Filter::Matches(const PubsubMessage& message) const { return Evaluate(root_, message); }

bool Filter::Evaluate(const Node& node, const PubsubMessage& message) {
  const auto holds = [&message](const Node& child) { return Evaluate(child, message); };
  const auto attribute = message.attributes().find(node.name);
  const bool has = attribute != message.attributes().end();
  switch (node.kind) {
    case Kind::kHas:
      return has;
    case Kind::kEquals:
      return has && attribute->second == node.value;
    case Kind::kPrefix:
      return has && attribute->second.compare(0, node.value.size(), node.value) == 0;
    case Kind::kNot:
      return !holds(node.children.front());
    case Kind::kAnd:
      return std::all_of(node.children.begin(), node.children.end(), holds);
    case Kind::kOr:
      return std::any_of(node.children.begin(), node.children.end(), holds);
  }
  return false;
}

}  // namespace lockstep::emulator
