#include "postgres/params.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include "absl/strings/escaping.h"
#include "platform/duration.h"

namespace lockstep::postgres {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 0;
}

}  // namespace

std::string EncodeBytea(std::string_view bytes) {
  return "\\x" + absl::BytesToHexString({bytes.data(), bytes.size()});
}

std::string DecodeBytea(std::string_view hex) {
  if (!hex.starts_with("\\x")) return std::string(hex);
  hex.remove_prefix(2);
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(HexDigit(hex[2 * i]) << 4 | HexDigit(hex[2 * i + 1]));
  }
  return bytes;
}

void Array::Separate() {
  if (size_++ > 0) text_ += ',';
}

void Array::AddPlain(std::string_view value) {
  Separate();
  text_ += value;
}

void Array::Add(std::string_view value) {
  Separate();
  text_ += '"';
  size_t done = 0;
  for (size_t i = value.find_first_of("\"\\"); i != std::string_view::npos;
       i = value.find_first_of("\"\\", i + 1)) {
    text_ += value.substr(done, i - done);
    text_ += '\\';
    done = i;
  }
  text_ += value.substr(done);
  text_ += '"';
}

void Array::Add(int64_t value) {
  Separate();
  fmt::format_to(std::back_inserter(text_), FMT_COMPILE("{}"), value);
}

void Array::Add(WallTime value) { Add(FormatTimestamp(value)); }

void Array::AddBytea(std::string_view bytes) {
  Separate();
  // A backslash inside an array's quotes is doubled.
  text_ += "\"\\";
  text_ += EncodeBytea(bytes);
  text_ += '"';
}

Params& Params::Add(double value) { return Add(fmt::format("{}", value)); }
Params& Params::Add(WallTime value) { return Add(FormatTimestamp(value)); }

}  // namespace lockstep::postgres
