#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  template <class Values>
  static Array Of(const Values& values) {
    Array array;
    for (const auto& value : values) array.Add(value);
    return array;
  }

  void Add(std::string_view value);
  void Add(const char* value) { Add(std::string_view(value)); }  // else it would be a bool
  void Add(int64_t value);
  void Add(int value) { Add(int64_t{value}); }
  void Add(bool value);
  void Add(WallTime value);
  void AddBytea(std::string_view bytes);
  void AddNull();
  void AddOptional(const std::optional<std::string>& value);

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
  requires(sizeof...(Values) > 1 ||
           (!std::same_as<Values, Params> && ...)) explicit Params(const Values&... values) {
    (Add(values), ...);
  }

  Params& Add(std::string_view value);
  Params& Add(const char* value) { return Add(std::string_view(value)); }
  Params& Add(const std::string& value) { return Add(std::string_view(value)); }
  Params& Add(int64_t value);
  Params& Add(int value) { return Add(static_cast<int64_t>(value)); }
  Params& Add(bool value);
  Params& Add(double value);
  Params& Add(WallTime value);
  Params& Add(const Array& value);
  Params& Add(Bytea value);
  Params& Add(std::nullptr_t);  // NULL
  template <class Tag>
  Params& Add(const StrongId<Tag>& id) {
    return Add(std::string_view(id.value()));
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
