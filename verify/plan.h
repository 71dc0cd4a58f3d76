#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "projections/plan/group_plan.h"
#include "publisher/backfill/declaration.h"
#include "verify/side.h"

namespace lockstep::verify {

// Where a key column of the replica comes from.
struct KeySource {
  std::string column;         // of the replica
  std::string field;          // of the payload; empty = an attribute or a constant
  std::string source_column;  // empty = a constant
  std::string constant;
};

// A table of a group and the source that it replicates, as SQL.
struct VerifyTable {
  std::string projection;
  std::string name;    // schema.table
  uint32_t index = 0;  // among the group's tables
  std::vector<KeySource> keys;
  SideRows source;
  // Rows that hold other constants in their key, or whose aggregate is of another type, are none
  // of this source's.
  SideRows replica;
  SideRows deleted;           // those of them that are marked deleted; without `from`: none are
  bool hard_deletes = false;  // the state schema remembers deletes
  // The condition that a row of the replica is one of this source's type; empty where no column
  // says so. Rows from before there was such a column don't fulfil it.
  std::string owned;
  std::vector<std::string> other_events;  // that write to the table too
  // Value columns that the event sets and that a deep comparison compares: their places among the
  // table's. Not those that say when, or by which event, a row was written.
  std::vector<uint32_t> values;
};

// The tables that replicate the declaration's rows: those in which its event type maps by
// `replace`; with `projection`, that one. Fails with a sentence when there is none, or when a
// table's key can't be told from the source's columns.
absl::StatusOr<std::vector<VerifyTable>> PlanVerify(const publisher::Declaration& declaration,
                                                    const projections::GroupPlan& group,
                                                    const std::string& projection);

}  // namespace lockstep::verify
