#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "projections/model/projector.h"

namespace lockstep::projections {

// One event, as plainly as it can be said. Test code.
struct PlainEvent {
  enum class Kind { kReplace, kMerge, kDelete };
  Kind kind = Kind::kReplace;
  bool snapshot = false;
  bool overwrite = false;  // of a snapshot
  bool covered = false;    // a snapshot came of its version or a later one
  std::string key;
  int64_t version = 0;
  std::string owner;  // its aggregate, where rows remember it
  // Present columns by index; nullopt = an explicit null.
  std::map<size_t, std::optional<std::string>> values;
};

// A versioned table in memory, written one event at a time: what the set-based path must equal.
// Deliberately simple-minded. Test code.
class NaiveApplier {
 public:
  struct Row {
    int64_t version = 0;
    bool deleted = false;
    std::vector<std::optional<std::string>> values;
    std::string owner;

    friend bool operator==(const Row&, const Row&) = default;
  };

  // What an absent column of a new row gets.
  explicit NaiveApplier(std::vector<std::optional<std::string>> defaults)
      : defaults_(std::move(defaults)) {}

  Outcome Apply(const PlainEvent& event) {
    const auto found = rows_.find(event.key);
    if (found != rows_.end()) {
      if (event.owner != found->second.owner) return Outcome::kForeign;
      if (event.version < found->second.version) return Outcome::kSuperseded;
      if (event.version == found->second.version && !event.overwrite) {
        return event.snapshot || event.covered ? Outcome::kSuperseded : Outcome::kConflict;
      }
    }
    const bool nothing = found == rows_.end();
    Row row = nothing ? Row{0, false, defaults_, event.owner} : found->second;
    if (event.kind == PlainEvent::Kind::kReplace ||
        (event.kind == PlainEvent::Kind::kMerge && row.deleted)) {
      row.values = defaults_;
    }
    for (const auto& [column, value] : event.values) row.values[column] = value;
    row.version = event.version;
    row.deleted = event.kind == PlainEvent::Kind::kDelete;
    rows_[event.key] = row;
    return Outcome::kApplied;
  }

  // Rows of a hard delete stay here, as their own tombstones.
  const std::map<std::string, Row>& rows() const { return rows_; }

 private:
  std::vector<std::optional<std::string>> defaults_;
  std::map<std::string, Row> rows_;
};

}  // namespace lockstep::projections
