#include "envelope/poison.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::envelope {

Poison Poison::AttributeMissing(std::string_view name) {
  return {"EVENT.ATTRIBUTE_MISSING", fmt::format("the message has no attribute '{}'", name)};
}

Poison Poison::AttributeInvalid(std::string reason) {
  return {"EVENT.ATTRIBUTE_INVALID", std::move(reason)};
}

Poison Poison::MappingFailed(std::string_view reason) {
  return {"EVENT.MAPPING_FAILED", std::string(reason)};
}

Poison Poison::VersionConflict(int64_t version) {
  return {"EVENT.VERSION_CONFLICT",
          fmt::format("the read model holds version {} of this aggregate from another event: a "
                      "forked or restored source",
                      version),
          /*blocks=*/false};
}

Poison Poison::ForeignRow() {
  return {"EVENT.FOREIGN_ROW",
          "a row that this event names belongs to another aggregate; a versioned table's key must "
          "tell the aggregates (and tenants) apart",
          /*blocks=*/false};
}

Poison Poison::RefusedByDatabase(std::string reason) {
  return {"EVENT.REFUSED_BY_DATABASE", std::move(reason)};
}

Poison Poison::NeverCommits(std::string reason) {
  return {"EVENT.NEVER_COMMITS", std::move(reason)};
}

}  // namespace lockstep::envelope
