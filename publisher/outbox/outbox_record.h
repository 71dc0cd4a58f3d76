#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {

// What the database says about one outbox, for the status page and the gauges.
struct OutboxRecord {
  // To be published: not dead, not quarantined; those held back included. Counted up to a bound.
  int64_t pending = 0;
  int64_t locked = 0;  // of them, under a lease
  Millis oldest{0};    // age of the oldest row that may go; 0 = none
  int64_t dead = 0;
  int64_t quarantined = 0;
  int64_t replays = 0;  // by hand, since the look before
  bool known = false;   // false = not read yet
  // These and the dead rows, as the outbox's part of the status document has them (web/README.md).
  nlohmann::json part = nlohmann::json::object();
};

// Never reads a payload. `audit`: the newest row of the audit that was seen, which moves on;
// nullopt the first time, when no replay counts.
absl::StatusOr<OutboxRecord> ReadOutboxRecord(postgres::Connection& connection,
                                              const postgres::QualifiedName& table,
                                              std::optional<int64_t>& audit);

}  // namespace lockstep::publisher
