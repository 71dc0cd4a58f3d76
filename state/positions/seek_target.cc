#include "state/positions/seek_target.h"

#include "platform/duration.h"

namespace lockstep::state {

SeekTarget SeekTarget::Stored(std::optional<WallTime> time, std::optional<std::string> snapshot) {
  if (time) return To(*time);
  return snapshot ? ToSnapshot(*std::move(snapshot)) : SeekTarget();
}

std::string_view SeekTarget::kind_name() const {
  return time ? "time" : snapshot ? "snapshot" : "none";
}

std::string SeekTarget::ToString() const {
  return time ? FormatTimestamp(*time) : snapshot.value_or("");
}

}  // namespace lockstep::state
