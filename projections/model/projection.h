#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "envelope/event.h"
#include "projections/model/call.h"

namespace lockstep::postgres {
class Transaction;
}

// What a service writes to project events in C++, where a mapping in YAML can't say it. Public:
// docs/embedding.md.
namespace lockstep::projections {

using envelope::Event;

// A table that a projection in C++ writes through the batch.
struct CodeTable {
  std::string table;                 // schema.table
  std::vector<std::string> key;      // key columns
  std::vector<std::string> columns;  // value columns
  std::string version;               // version column; empty = counting
  std::string updated_at;            // empty = none
  std::string deleted_at;            // empty = deletes are hard
  std::string aggregate;             // column that holds the row's aggregate; empty = none
  bool merges = false;               // whether Merge is called
  bool deletes = false;              // whether Delete is called
};

// Where a projection in C++ puts its rows; they are folded and written with one statement per
// table, like declared ones. Values are Postgres's text; nullopt is NULL.
class RowSink {
 public:
  using Text = std::optional<std::string>;
  using Values = std::vector<std::pair<std::string_view, Text>>;  // column, value

  virtual ~RowSink() = default;
  // `table` is the index in Tables(). An unknown column is an error of the projection.
  virtual absl::Status Replace(size_t table, const std::vector<std::string>& key,
                               const Values& values) = 0;
  virtual absl::Status Merge(size_t table, const std::vector<std::string>& key,
                             const Values& values) = 0;
  virtual absl::Status Increment(size_t table, const std::vector<std::string>& key,
                                 const Values& deltas) = 0;
  virtual absl::Status Delete(size_t table, const std::vector<std::string>& key) = 0;
};

// What a mapping can't say. Registered with a runner (runner/service/runner.h) beside the declared
// projections of a group, in the same transaction. Called from any lane's thread, so const and
// without state of its own. What it throws becomes a status: an exception in Map is poison, one in
// Write is data (SQLSTATE P0001), isolated down to the event like any other.
class Projection {
 public:
  virtual ~Projection() = default;

  virtual std::string Name() const = 0;
  virtual bool Wants(const Event& event) const = 0;
  // Whether it knows what to do with a snapshot (event.kind): how an aggregate stands, which may
  // come again at the same version. If not, Map may replace rows for one; anything else, and Write,
  // makes it a dead letter.
  virtual bool TakesSnapshots() const { return false; }
  virtual bool ParksOnGap(const Event&) const { return false; }

  // Tables that are written through the batch, in this order.
  virtual std::vector<CodeTable> Tables() const { return {}; }
  // Turns an event into rows. Off the transaction.
  virtual absl::Status Map(const Event&, RowSink&) const { return absl::OkStatus(); }

  // Tables that Write touches with its own SQL, for resets and rebuilds, as schema.table.
  virtual std::vector<std::string> OwnTables() const { return {}; }
  // Whether Write is wanted at all.
  virtual bool Writes() const { return false; }
  // Whether Write looks at event.replay: then it is told of each event whether the group has
  // handled it before, and gets those too that a replay brings again to tables that were not
  // emptied. If not, these are kept from it, and event.replay may be false where it should not be.
  virtual bool MindsReplays() const { return false; }
  // Runs its own SQL for the batch's events that it wants, after the rows. RefuseEvent (call.h) as
  // its status makes one event of them a dead letter; the others come again without it. `suffix`
  // belongs behind every table's name (a rebuild's shadow slot; else empty). The session has
  // postgres::kPlannedOnce: SQL that wants other plans says SET LOCAL.
  virtual absl::Status Write(postgres::Transaction&, std::span<const Event* const>,
                             const std::string& suffix) const {
    (void)suffix;
    return absl::OkStatus();
  }
};

// The projections in C++ of each group, by its name. Written after the declared ones, in this
// order.
using CodeProjections = std::map<std::string, std::vector<std::shared_ptr<const Projection>>>;

}  // namespace lockstep::projections
