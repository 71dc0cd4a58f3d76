#include "postgres/result.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "platform/duration.h"
#include "postgres/connection_impl.h"
#include "postgres/params.h"

namespace lockstep::postgres {

int Result::rows() const { return static_cast<int>(impl_->result.size()); }
int Result::columns() const { return static_cast<int>(impl_->result.columns()); }
int64_t Result::affected_rows() const {
  return static_cast<int64_t>(impl_->result.affected_rows());
}
bool Result::IsNull(int row, int column) const { return impl_->result[row][column].is_null(); }

std::string_view Result::Text(int row, int column) const {
  const auto field = impl_->result[row][column];
  return {field.c_str(), static_cast<size_t>(field.size())};
}

std::optional<std::string> Result::Optional(int row, int column) const {
  if (IsNull(row, column)) return std::nullopt;
  return std::string(Text(row, column));
}

int64_t Result::Int(int row, int column) const {
  const std::string_view text = Text(row, column);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool Result::Bool(int row, int column) const { return Text(row, column) == "t"; }
std::string Result::Bytes(int row, int column) const { return DecodeBytea(Text(row, column)); }

WallTime Result::Time(int row, int column) const {
  std::string text(Text(row, column));  // 2026-01-31 12:00:00.123456+00
  if (text.size() > 10) text[10] = 'T';
  if (text.ends_with("+00")) text.replace(text.size() - 3, 3, "Z");
  return ParseTimestamp(text).value_or(WallTime());
}

int Result::Column(std::string_view name) const {
  // Rows are read in the order of their columns, mostly: the next one is where to look first.
  const int count = columns();
  const int first = impl_->next_column.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    const int column = (first + i) % count;
    if (name != impl_->result.column_name(column)) continue;
    impl_->next_column.store((column + 1) % count, std::memory_order_relaxed);
    return column;
  }
  return -1;
}

int Row::At(std::string_view name) const {
  const int column = result_->Column(name);
  if (column >= 0) return column;
  fmt::print(stderr, "lockstep: a statement has no column '{}'\n", name);
  std::abort();
}

}  // namespace lockstep::postgres
