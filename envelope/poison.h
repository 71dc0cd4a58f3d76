#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::envelope {

// Why a message can't be applied, ever. Made here and nowhere else, so that this is the list of the
// codes (docs/errors.md explains them).
struct Poison {
  std::string code;
  std::string reason;  // at most 2 KiB, never a payload
  bool blocks = true;  // false: another event has its version, so nothing waits for it

  static Poison AttributeMissing(std::string_view name) {
    return {"EVENT.ATTRIBUTE_MISSING", fmt::format("the message has no attribute '{}'", name)};
  }
  static Poison AttributeInvalid(std::string reason) {
    return {"EVENT.ATTRIBUTE_INVALID", std::move(reason)};
  }
  static Poison MappingFailed(std::string_view reason) {
    return {"EVENT.MAPPING_FAILED", std::string(reason)};
  }
  // A snapshot of an event type that says what happened, not how things stand.
  static Poison SnapshotRefused(std::string_view reason) {
    return {"EVENT.SNAPSHOT_REFUSED", std::string(reason)};
  }
  // The table holds this version from another event.
  static Poison VersionConflict(int64_t version) {
    return {"EVENT.VERSION_CONFLICT",
            fmt::format("the read model holds version {} of this aggregate from another event: a "
                        "forked or restored source",
                        version),
            /*blocks=*/false};
  }
  // A row that the event names belongs to another aggregate.
  static Poison ForeignRow() {
    return {
        "EVENT.FOREIGN_ROW",
        "a row that this event names belongs to another aggregate; a versioned table's key must "
        "tell the aggregates (and tenants) apart",
        /*blocks=*/false};
  }
  // A handler (a function, an endpoint, code of the service) said no to this very event.
  static Poison RefusedByHandler(std::string reason) {
    return {"HANDLER.REFUSED", std::move(reason)};
  }
  // Its transaction fails: refused for its data, or never committed while others do.
  static Poison RefusedByDatabase(std::string reason) {
    return {"EVENT.REFUSED_BY_DATABASE", std::move(reason)};
  }
  static Poison NeverCommits(std::string reason) {
    return {"EVENT.NEVER_COMMITS", std::move(reason)};
  }
};

}  // namespace lockstep::envelope
