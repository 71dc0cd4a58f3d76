#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/event.h"

namespace lockstep::postgres {
class Connection;
class Transaction;
}  // namespace lockstep::postgres

namespace lockstep::projections {

using envelope::Aggregate;
using envelope::AggregateKey;
using envelope::Event;

// What one event means for the tables, decoded and mapped, ready to be folded and written.
// Made off the transaction, on any thread; consumed by the Projector that made it.
class Change {
 public:
  virtual ~Change() = default;

  // Whether the mapping alone says that no table wants it.
  virtual bool ignored() const { return false; }
};

// What became of one event of a batch.
enum class Outcome {
  kApplied,     // its effect is in the tables (alone or folded with its successors)
  kSuperseded,  // every table had a newer version already
  kIgnored,     // by declaration, or its `when` said no
  kConflict,    // unseen, yet a table holds its very version: a forked or restored source
  kForeign,     // a row that it names belongs to another aggregate, whose versions it carries
};

struct ApplyOptions {
  // During a replay without emptying: also accept the stored version itself (replace tables only).
  bool overwrite = false;
  // The generation of the read model that is written (the inbox key's). Tombstones belong to it, so
  // an emptied or rebuilt model starts without any.
  int64_t generation = 0;
  // With `overwrite`: per change, whether the inbox had seen the event before. A seen event is
  // never counted again and never merged again. Empty = all are new.
  std::vector<bool> seen;
  // Per change, whether a snapshot brought the event's version or a later one: to meet it in a
  // table is no conflict then. Empty = none.
  std::vector<bool> covered;
};

// All projections of one consumer group. The runner knows this interface and nothing else of
// mappings. Safe from any thread: what belongs to a lane is the transaction.
class Projector {
 public:
  virtual ~Projector() = default;

  // Decodes the payload and maps it. A failure is poison: it will never succeed.
  // FAILED_PRECONDITION: a snapshot, of an event type whose mapping takes none.
  virtual absl::StatusOr<std::unique_ptr<Change>> Map(const Event& event) const = 0;

  // Writes a batch in the caller's transaction: folded per row in version order, each table with
  // one set-based statement, rows in key order, tables in declared order.
  // REQUIRES: the events are new to the inbox (unless overwriting); those of an aggregate are in
  // version order, a snapshot before an event of its version. A failed status is the database's, to
  // be classified by SQLSTATE.
  virtual absl::StatusOr<std::vector<Outcome>> Apply(postgres::Transaction& transaction,
                                                     const std::vector<const Change*>& changes,
                                                     const ApplyOptions& options) const = 0;

  // Whether a version that skips its predecessor must wait (on_gap: park, the default of `merge`).
  // Answered per event, for one group may feed tables of both kinds.
  virtual bool ParksOnGap(const Event& event) const = 0;

  // Whether any event of the group may park on a gap. If none can, the runner need not follow the
  // versions of every aggregate.
  virtual bool MayPark() const { return true; }

  // Compares the declaration with the live tables: every mismatch, one per line. Called at start;
  // a mismatch halts the group before its first message.
  virtual absl::Status Check(postgres::Connection& connection) const = 0;

  // The tables written, as schema.table, in declared order (resets empty them, rebuilds copy them).
  virtual std::vector<std::string> Tables() const = 0;
};

}  // namespace lockstep::projections
