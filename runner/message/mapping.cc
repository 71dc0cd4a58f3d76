#include "runner/message/mapping.h"

#include <exception>
#include <utility>

#include "platform/status.h"

namespace lockstep::runner {

void MapEvent(const projections::Projector& projector, Inbound& item) {
  const auto poison = [&](std::string_view reason) {
    item.poison = Poison{"EVENT.MAPPING_FAILED", std::string(reason)};
  };
  try {
    auto change = projector.Map(item.event);
    if (change.ok()) {
      item.change = *std::move(change);
    } else {
      poison(MessageOf(change.status()));
    }
  } catch (const std::exception& e) {
    poison(e.what());
  }
}

}  // namespace lockstep::runner
