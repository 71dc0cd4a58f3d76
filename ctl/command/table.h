#pragma once

#include <concepts>
#include <cstdio>
#include <string>
#include <vector>

#include "ctl/command/json.h"
#include "ctl/command/terminal.h"

namespace lockstep::ctl {

// A table for people, with headers, aligned by what stands in it. On a terminal it is as wide as
// the terminal at most: texts that may be cut end with "…"; where that is not enough, every row is
// shown as a block of lines. Elsewhere nothing is cut. What is shown can't act on the terminal.
class Table {
 public:
  struct Column {
    std::string header;
    enum Kind {
      kText,    // shown whole: what another command is given
      kNumber,  // the same, to the right
      kCut,     // may be cut
      kTime,    // RFC 3339, shown to the second
    } kind = kText;
  };
  struct Cell {
    // NOLINTBEGIN(google-explicit-constructor): a row is written as a list of values
    Cell(std::string value, Style as = Style::kPlain) : text(std::move(value)), style(as) {}
    Cell(const char* value) : text(value) {}
    Cell(const Json& value) : text(TextOf(value)) {}
    template <std::integral Number>
    Cell(Number number) : text(std::to_string(number)) {}
    // NOLINTEND(google-explicit-constructor)
    std::string text;
    Style style = Style::kPlain;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: a cell for each column.
  void Add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }

  // `width` 0 = as wide as it gets.
  std::string Text(int width, bool colour) const;
  void Print(std::FILE* to = stdout) const;

 private:
  std::vector<int> Fit(int width) const;  // of each column; empty = it does not fit
  std::string Blocks(int width, bool colour) const;
  // Columns that are empty in every row take no place.
  bool Shown(size_t column) const { return widths_[column] > 0 || rows_.empty(); }

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<int> widths_ = std::vector<int>(columns_.size(), 0);  // of what stands below headers
};

// "2026-01-31T12:00:00Z" of a time with fractions: as exact as people read it, and still a time
// that every command takes.
std::string ToTheSecond(const std::string& rfc3339);

// How a state is painted: what needs somebody is red, what waits yellow, what is well green.
Style StyleOf(std::string_view state);

}  // namespace lockstep::ctl
