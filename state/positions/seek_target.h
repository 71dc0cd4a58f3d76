#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/clock.h"
#include "platform/duration.h"

namespace lockstep::state {

// Where to seek: as somebody asks for it and, once offsets::Resolve has fixed it, as an epoch
// stores it and Pub/Sub performs it.
struct SeekTarget {
  enum class Kind {
    kNone,  // no Seek: from where the subscription stands
    kTime,
    kSnapshot,
    // These mean something else each day; offsets::Resolve makes one of the above of them.
    kEarliest,
    kLatest,
    kCheckpoint,  // the newest recorded one
  };
  Kind kind = Kind::kNone;
  std::optional<WallTime> time;         // of kTime
  std::optional<std::string> snapshot;  // of kSnapshot: its full name

  static SeekTarget To(WallTime time) { return {.kind = Kind::kTime, .time = time}; }
  static SeekTarget ToSnapshot(std::string name) {
    return {.kind = Kind::kSnapshot, .snapshot = std::move(name)};
  }
  // As it is stored: one of the two, or none.
  static SeekTarget Stored(std::optional<WallTime> time, std::optional<std::string> snapshot) {
    if (time) return To(*time);
    return snapshot ? ToSnapshot(*std::move(snapshot)) : SeekTarget();
  }

  // As it stands in the database.
  std::string_view kind_name() const { return time ? "time" : snapshot ? "snapshot" : "none"; }
  // The time or the snapshot.
  std::string ToString() const { return time ? FormatTimestamp(*time) : snapshot.value_or(""); }
};

}  // namespace lockstep::state
