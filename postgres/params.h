#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::postgres {

// A bytea value in Postgres's hex form, for a parameter or an array element; and back.
std::string EncodeBytea(std::string_view bytes);
std::string DecodeBytea(std::string_view hex);

// Builds the text of a Postgres array, element by element: `{"a","b",NULL}`. With it one parameter
// carries a whole batch: `SELECT … FROM unnest($1::uuid[], $2::bigint[])`.
class Array {
 public:
  explicit Array(size_t expected_bytes = 0) { text_.reserve(expected_bytes + 2); }
  template <class Value>
  explicit Array(const std::vector<Value>& values) {
    for (const Value& value : values) Add(value);
  }

  void Add(std::string_view value);
  void Add(const char* value) { Add(std::string_view(value)); }  // else it would be a bool
  void Add(int64_t value);
  void Add(int value) { Add(static_cast<int64_t>(value)); }
  void Add(bool value) { AddPlain(value ? "t" : "f"); }
  void Add(WallTime value);
  void AddBytea(std::string_view bytes);
  template <class Value>
  void Add(const std::optional<Value>& value) {
    value.has_value() ? Add(*value) : AddNull();
  }
  void AddNull() { AddPlain("NULL"); }
  // NULL for an empty text.
  void AddIfAny(std::string_view value) { value.empty() ? AddNull() : Add(value); }

  // Elements that need no quoting (numbers, uuids known to be valid).
  void AddPlain(std::string_view value);

  size_t size() const { return size_; }
  std::string Text() const { return text_ + "}"; }

 private:
  void Separate();

  std::string text_ = "{";
  size_t size_ = 0;
};

// Bytes, as a parameter: Params(id, Bytea{payload}).
struct Bytea {
  std::string_view bytes;
};

// The parameters $1, $2, … of one statement, as text (what libpqxx 6 and 7 have in common).
class Params {
 public:
  Params() = default;
  template <class... Values>
  explicit Params(const Values&... values) {
    (Add(values), ...);
  }

  Params& Add(std::string value) {
    values_.emplace_back(std::move(value));
    return *this;
  }
  Params& Add(std::string_view value) { return Add(std::string(value)); }
  Params& Add(const char* value) { return Add(std::string(value)); }
  Params& Add(int64_t value) { return Add(std::to_string(value)); }
  Params& Add(int value) { return Add(static_cast<int64_t>(value)); }
  Params& Add(bool value) { return Add(value ? "t" : "f"); }
  Params& Add(double value);
  Params& Add(WallTime value);
  Params& Add(Millis value) { return Add(static_cast<int64_t>(value.count())); }
  Params& Add(const Array& value) { return Add(value.Text()); }
  Params& Add(Bytea value) { return Add(EncodeBytea(value.bytes)); }
  Params& Add(std::nullptr_t) {  // NULL
    values_.emplace_back(std::nullopt);
    return *this;
  }
  template <class Value>
  Params& Add(const std::vector<Value>& values) {
    return Add(Array(values));
  }
  template <class Tag>
  Params& Add(const StrongId<Tag>& id) {
    return Add(id.value());
  }
  template <class Value>
  Params& Add(const std::optional<Value>& value) {
    return value.has_value() ? Add(*value) : Add(nullptr);
  }

  const std::vector<std::optional<std::string>>& values() const { return values_; }

 private:
  std::vector<std::optional<std::string>> values_;
};

}  // namespace lockstep::postgres
