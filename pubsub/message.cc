#include "pubsub/message.h"

namespace lockstep::pubsub {

int64_t Message::ByteSize() const {
  auto size = static_cast<int64_t>(data.size() + ordering_key.size());
  for (const auto& [key, value] : attributes) {
    size += static_cast<int64_t>(key.size() + value.size());
  }
  return size;
}

}  // namespace lockstep::pubsub
