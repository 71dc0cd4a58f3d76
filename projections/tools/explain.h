#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/event.h"
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

// The payload of an event as JSON, for people who asked to see it: JSON as it is, protobuf decoded
// with the message that the group's file names for the event type. Nothing when it can't be decoded
// (or when the projector was not loaded from a file).
std::optional<std::string> PayloadAsJson(const Projector& projector, const Event& event);

// Events from a JSON file: an object or a list of objects with the names of the wire (event_type,
// aggregate_id, version, …). `payload` is an object (JSON) or base64 text (protobuf).
absl::StatusOr<std::vector<Event>> ReadEventFile(const std::string& file);

}  // namespace lockstep::projections
