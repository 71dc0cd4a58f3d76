#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "envelope/received.h"
#include "projections/model/call.h"

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

  // Whether the mapping alone says that no table and no handler wants it.
  virtual bool ignored() const { return false; }

  // The HTTP handlers that are to be called for it, by their place in Projector::Calls().
  virtual std::span<const uint32_t> calls_outside() const { return {}; }
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
  // Per change, whether the group has handled the event before, in this generation or another.
  // Empty = none.
  std::vector<bool> replays;
  // Per change, the message that it came with. REQUIRES: set where the group has handlers.
  std::vector<const envelope::Received*> messages;
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

  // Whether the event deletes the aggregate's row from every table that events merge into, so that
  // how the row stood before does not matter.
  virtual bool LeavesNothing(const Event& /*event*/) const { return false; }

  // Whether any event of the group may park on a gap. If none can, the runner need not follow the
  // versions of every aggregate.
  virtual bool MayPark() const { return true; }

  // What its handlers call.
  virtual std::span<const Call> Calls() const { return {}; }

  // Whether some handler wants to know what the group has handled before, or must not get it again.
  virtual bool MindsReplays() const { return false; }

  // What of it must have each event once, and not only how things stand after it, as the middle of
  // a sentence; empty = nothing: then versions are enough to know an event again.
  virtual std::string NeedsEachEvent() const { return ""; }

  // Compares the declaration with the live tables: every mismatch, one per line. Called at start;
  // a mismatch halts the group before its first message.
  virtual absl::Status Check(postgres::Connection& connection) const = 0;

  // A hash of all that decides how events become rows, as far as files say it: two projectors with
  // the same one write the same. Empty = not known.
  virtual std::string Mapping() const { return ""; }

  // The tables written, as schema.table, in declared order (resets empty them, rebuilds copy them).
  virtual std::vector<std::string> Tables() const = 0;

  // The columns that it writes, as schema.table.column, as far as files say them. Empty = not
  // known.
  virtual std::vector<std::string> Columns() const { return {}; }

  // Tables that functions write, as the file says: resets empty them, rebuilds leave them alone.
  virtual std::vector<std::string> TablesOfFunctions() const { return {}; }
  std::vector<std::string> AllTables() const {
    std::vector<std::string> all = Tables();
    for (std::string& table : TablesOfFunctions()) {
      if (std::find(all.begin(), all.end(), table) == all.end()) all.push_back(std::move(table));
    }
    return all;
  }
};

}  // namespace lockstep::projections
