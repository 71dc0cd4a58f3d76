#include "runner/message/mapping.h"

#include <exception>
#include <utility>

#include "platform/status.h"

namespace lockstep::runner {

void MapEvent(const projections::Projector& projector, Inbound& item) {
  try {
    auto change = projector.Map(item.event);
    if (change.ok()) {
      item.change = *std::move(change);
    } else {
      item.poison = Poison::MappingFailed(MessageOf(change.status()));
    }
  } catch (const std::exception& e) {
    item.poison = Poison::MappingFailed(e.what());
  }
}

}  // namespace lockstep::runner
