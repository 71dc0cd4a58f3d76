#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/clock.h"

namespace lockstep::postgres {

class Row;

// The rows of one statement. Cells are text; cheap to copy; outlives its connection.
class Result {
 public:
  struct Impl;
  explicit Result(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  int rows() const;
  int columns() const;
  bool empty() const { return rows() == 0; }
  int64_t affected_rows() const;

  bool IsNull(int row, int column) const;
  std::string_view Text(int row, int column) const;  // empty for NULL
  std::optional<std::string> Optional(int row, int column) const;
  int64_t Int(int row, int column) const;  // 0 for NULL
  bool Bool(int row, int column) const;
  std::string Bytes(int row, int column) const;  // of a bytea
  // REQUIRES: the column is a timestamptz (the session's zone is UTC and its style ISO).
  WallTime Time(int row, int column) const;
  int Column(std::string_view name) const;  // -1 when there is none

  // Row by row, with columns by name: for (const Row row : result) row.Text("message_id").
  Row operator[](int row) const;
  class Iterator;
  Iterator begin() const;
  Iterator end() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// One row, its columns by name. REQUIRES: the statement has such a column (else the program ends:
// that is a mistake in its SQL), and the result outlives the row.
class Row {
 public:
  Row(const Result& result, int row) : result_(&result), row_(row) {}

  bool IsNull(std::string_view name) const { return result_->IsNull(row_, At(name)); }
  std::string_view Text(std::string_view name) const { return result_->Text(row_, At(name)); }
  std::string String(std::string_view name) const { return std::string(Text(name)); }
  int64_t Int(std::string_view name) const { return result_->Int(row_, At(name)); }
  bool Bool(std::string_view name) const { return result_->Bool(row_, At(name)); }
  std::string Bytes(std::string_view name) const { return result_->Bytes(row_, At(name)); }
  WallTime Time(std::string_view name) const { return result_->Time(row_, At(name)); }
  // nullopt for NULL.
  std::optional<std::string> OptionalText(std::string_view name) const {
    return result_->Optional(row_, At(name));
  }
  std::optional<int64_t> OptionalInt(std::string_view name) const {
    return IsNull(name) ? std::nullopt : std::optional(Int(name));
  }
  std::optional<WallTime> OptionalTime(std::string_view name) const {
    return IsNull(name) ? std::nullopt : std::optional(Time(name));
  }

 private:
  int At(std::string_view name) const;

  const Result* result_;
  int row_;
};

class Result::Iterator {
 public:
  Iterator(const Result& result, int row) : result_(&result), row_(row) {}
  Row operator*() const { return {*result_, row_}; }
  Iterator& operator++() {
    ++row_;
    return *this;
  }
  friend bool operator==(const Iterator&, const Iterator&) = default;

 private:
  const Result* result_;
  int row_;
};

inline Row Result::operator[](int row) const { return {*this, row}; }
inline Result::Iterator Result::begin() const { return {*this, 0}; }
inline Result::Iterator Result::end() const { return {*this, rows()}; }

}  // namespace lockstep::postgres
