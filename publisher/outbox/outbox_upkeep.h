#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

// What an outbox needs besides being relayed.
namespace lockstep::publisher {

// Old rows are deleted, at most so many at a time. Answers how many.
absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const postgres::QualifiedName& table, Millis older_than,
                                        int rows);
absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection,
                                   const postgres::QualifiedName& table, Millis older_than,
                                   int rows);

// Rows held behind a blocker that is gone; a safety net. Answers how many.
absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection,
                                    const postgres::QualifiedName& table, bool dead_blocks);

// Replays by hand since the audit row `seen`, which moves on; none the first time (nullopt).
absl::StatusOr<int64_t> CountNewReplays(postgres::Connection& connection,
                                        const postgres::QualifiedName& table,
                                        std::optional<int64_t>& seen);

// The newest committed position; 0 = none.
absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
                                       const postgres::QualifiedName& table);

}  // namespace lockstep::publisher
