#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "envelope/event.h"
#include "projections/model/projector.h"

namespace lockstep::projections {

// Absent is not null: a merge leaves the column of an absent value as it is.
enum class CellState : uint8_t { kAbsent, kNull, kText };

// A column's value as Postgres's text, somewhere in the buffer of its change.
struct Cell {
  CellState state = CellState::kAbsent;
  uint32_t offset = 0;
  uint32_t size = 0;
};

// (kCall writes no table: it has a handler called.)
enum class Operation : uint8_t { kReplace, kMerge, kIncrement, kDelete, kIgnore, kCall };
inline const std::vector<std::pair<std::string, Operation>> kOperations = {
    {"replace", Operation::kReplace},     {"merge", Operation::kMerge},
    {"increment", Operation::kIncrement}, {"delete", Operation::kDelete},
    {"ignore", Operation::kIgnore},       {"call", Operation::kCall}};

// What one event does to one row of one table.
struct RowChange {
  uint32_t table = 0;  // index among the group's tables
  Operation operation = Operation::kIgnore;
  // Cells of the row: the key columns, the value columns, then deleted_at where the table has one.
  uint32_t first_cell = 0;
};

// The change of one event: rows over one buffer, so that an event costs a handful of allocations.
class MappedChange : public Change {
 public:
  std::string_view Text(const Cell& cell) const {
    return std::string_view(text).substr(cell.offset, cell.size);
  }
  bool ignored() const override { return rows.empty() && code.empty() && calls.empty(); }
  std::span<const uint32_t> calls_outside() const override { return outside; }

  int64_t version = 0;
  bool snapshot = false;   // how its aggregate stands at this version, not what made the version
  bool overwrite = false;  // of a snapshot: it also replaces a row of its very version
  bool absent = false;     // of one that overwrites: the source has no such aggregate
  std::string aggregate;   // where some table remembers its rows' aggregates; else empty
  std::string text;
  std::vector<Cell> cells;
  std::vector<RowChange> rows;
  // For projections in C++ that run their own SQL: the event itself and who wants it.
  std::unique_ptr<Event> event;
  std::vector<uint32_t> code;
  // For handlers: the functions and endpoints to be called, by their place in Mappings::calls; of
  // these the endpoints; and the payload as JSON, where it is protobuf that can be read.
  std::vector<uint32_t> calls;
  std::vector<uint32_t> outside;
  std::optional<std::string> data;
};

}  // namespace lockstep::projections
