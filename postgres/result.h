#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/clock.h"

namespace lockstep::postgres {

// The rows of one statement. Cells are text; cheap to copy; outlives its connection.
class Result {
 public:
  struct Impl;
  explicit Result(std::shared_ptr<const Impl> impl);

  int rows() const;
  int columns() const;
  bool empty() const { return rows() == 0; }
  int64_t affected_rows() const;

  bool IsNull(int row, int column) const;
  std::string_view Text(int row, int column) const;  // empty for NULL
  std::optional<std::string> Optional(int row, int column) const;
  int64_t Int(int row, int column) const;  // 0 for NULL
  double Double(int row, int column) const;
  bool Bool(int row, int column) const;
  std::string Bytes(int row, int column) const;  // of a bytea
  // REQUIRES: the column is a timestamptz (the session's zone is UTC and its style ISO).
  WallTime Time(int row, int column) const;
  int Column(std::string_view name) const;  // -1 when there is none

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::postgres
