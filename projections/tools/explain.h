#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/event.h"
#include "projections/plan/live_table.h"
#include "projections/write/group_projector.h"

namespace lockstep::projections {

// What the version guard would say about a row now, where a database was at hand (GuardPreview).
struct GuardVerdict {
  // apply; superseded (a newer version is stored); conflict (this very version is: a forked or
  // restored source, and a dead letter); foreign (the row is another aggregate's); count (the inbox
  // alone guards); dead letter (`why`).
  std::string verdict;
  std::string why;
  std::optional<int64_t> stored_version;  // nullopt = no such row
  bool stored_deleted = false;
};

// What an event would do to one row.
struct ExplainedRow {
  size_t table_index = 0;  // among the group's tables
  std::string projection;
  std::string table;
  std::string operation;  // replace, merge, increment, soft delete, hard delete
  std::vector<std::pair<std::string, std::string>> key;
  // In the table's order; what is absent is left out. nullopt = NULL.
  std::vector<std::pair<std::string, std::optional<std::string>>> columns;
  std::vector<std::string> absent;
  std::optional<GuardVerdict> guard;  // nullopt = nobody looked
};

// Maps the event and writes nothing. No rows = ignored.
absl::StatusOr<std::vector<ExplainedRow>> Explain(const GroupProjector& projector,
                                                  const Event& event);

// What the guards (inbox, stored versions, tombstones) would say about events, one after the other,
// if they came now. For `explain`: it reads and never writes, and takes no lock. What an earlier
// event of this object would have written counts as stored. One thread, as its connection.
class GuardPreview {
 public:
  // REQUIRES: `plan` and `connection` outlive it. Without a state schema, or before the group's
  // first start, there is no inbox and there are no tombstones to look at.
  static absl::StatusOr<GuardPreview> Open(const GroupPlan& plan, postgres::Connection& connection);

  // Whether the state knows the group: it has started, and the state's schema was named.
  bool knows_the_group() const { return generation_.has_value(); }

  // Whether the inbox has the event, which then would be skipped as a whole.
  absl::StatusOr<bool> Seen(const Event& event);

  // Fills in what the guard of a row of the event's says. A failed status is the database's.
  absl::Status Judge(const Event& event, ExplainedRow* row);

 private:
  struct Stored {
    int64_t version = 0;
    bool deleted = false;
    std::optional<std::string> aggregate;
  };

  GuardPreview(const GroupPlan& plan, postgres::Connection& connection)
      : plan_(&plan), connection_(&connection) {}
  // `of_versions`: what row_versions says, tombstones included, rather than the table.
  std::string Query(const Table& table, const LiveTable& live, bool of_versions) const;

  const GroupPlan* plan_;
  postgres::Connection* connection_;
  std::optional<int64_t> generation_;  // of the group's active slot
  std::vector<LiveTable> live_;        // by table
  // By table and key; nothing = the row would be gone without a trace.
  std::map<std::pair<size_t, std::string>, std::optional<Stored>> would_be_;
};

// The payload of an event as JSON, for people who asked to see it: JSON as it is, protobuf decoded
// with the message that the group's file names for the event type. Nothing when it can't be
// decoded.
std::optional<std::string> PayloadAsJson(const GroupPlan& plan, const Event& event);

// Events from a JSON file: an object or a list of objects with the names of the wire (event_type,
// aggregate_id, version, …). `payload` is an object (JSON) or base64 text (protobuf).
absl::StatusOr<std::vector<Event>> ReadEventFile(const std::string& file);

}  // namespace lockstep::projections
