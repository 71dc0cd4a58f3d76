#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::envelope {

// Why a message can't be applied, ever. Made here and nowhere else, so that this is the list of the
// codes (docs/errors.md explains them).
struct Poison {
  std::string code;
  std::string reason;  // at most 2 KiB, never a payload
  bool blocks = true;  // false: another event has its version, so nothing waits for it

  static Poison AttributeMissing(std::string_view name);
  static Poison AttributeInvalid(std::string reason);
  static Poison MappingFailed(std::string_view reason);
  // The table holds this version from another event.
  static Poison VersionConflict(int64_t version);
  // A row that the event names belongs to another aggregate.
  static Poison ForeignRow();
  // Its transaction fails: refused for its data, or never committed while others do.
  static Poison RefusedByDatabase(std::string reason);
  static Poison NeverCommits(std::string reason);
};

}  // namespace lockstep::envelope
