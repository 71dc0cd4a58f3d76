#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "projections/plan/live_table.h"
#include "projections/tools/explain.h"

namespace lockstep::projections {

// What the guards (inbox, stored versions, tombstones) would say about events, one after the other,
// if they came now. For `explain`: it reads and never writes, and takes no lock. What an earlier
// event of this object would have written counts as stored. One thread, as its connection.
class GuardPreview {
 public:
  // REQUIRES: `plan` and `connection` outlive it. Without a state schema, or before the group's
  // first start, there is no inbox and there are no tombstones to look at.
  static absl::StatusOr<GuardPreview> Open(const GroupPlan& plan, postgres::Connection& connection);

  // Whether the inbox has the event, which then would be skipped as a whole.
  absl::StatusOr<bool> Seen(const Event& event);

  // Fills in what each row's guard says. A failed status is the database's.
  absl::Status Judge(const Event& event, std::vector<ExplainedRow>* rows);

 private:
  struct Stored {
    int64_t version = 0;
    bool deleted = false;
    std::optional<std::string> aggregate;
  };

  GuardPreview(const GroupPlan& plan, postgres::Connection& connection)
      : plan_(&plan), connection_(&connection) {}
  absl::Status JudgeRow(const Event& event, ExplainedRow* row);
  std::string Query(const Table& table, const LiveTable& live) const;

  const GroupPlan* plan_;
  postgres::Connection* connection_;
  std::optional<int64_t> generation_;                          // of the group's active slot
  std::vector<LiveTable> live_;                                // by table
  std::map<std::pair<size_t, std::string>, Stored> would_be_;  // table and key
};

}  // namespace lockstep::projections
