#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "envelope/source_event.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// An outbox as a record of what was published, to be compared with what a consumer has.
namespace lockstep::publisher {

using envelope::SourceEvent;

struct LedgerFilter {
  WallTime since;                   // published since then, or not published yet
  std::vector<std::string> topics;  // logical; empty = all
};

// In the order of their ids: those past `after` (empty = from the first), at most so many.
absl::StatusOr<std::vector<SourceEvent>> ReadLedger(postgres::Connection& connection,
                                                    const postgres::QualifiedName& table,
                                                    const LedgerFilter& filter,
                                                    const std::string& after, int limit);

absl::StatusOr<SourceEvent> ReadLedgerRow(postgres::Connection& connection,
                                          const postgres::QualifiedName& table, int64_t sequence);

// Which of these events the outbox has, whenever they were published.
absl::StatusOr<std::vector<std::string>> KeptEvents(postgres::Connection& connection,
                                                    const postgres::QualifiedName& table,
                                                    const std::vector<std::string>& ids);

// When the oldest published row that is kept was published (an outbox without one keeps nothing
// from before now), and the database's time.
struct LedgerTimes {
  WallTime oldest;
  WallTime now;
};
absl::StatusOr<LedgerTimes> ReadLedgerTimes(postgres::Connection& connection,
                                            const postgres::QualifiedName& table);

// One event as a consumer gets it, with its payload; the right to that is needed.
absl::StatusOr<envelope::Event> LoadEvent(postgres::Connection& connection,
                                          const postgres::QualifiedName& table, int64_t sequence);

}  // namespace lockstep::publisher
