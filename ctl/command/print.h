#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "platform/printable.h"

// All that lockstepctl prints for people goes through here: what is printed comes from events and
// databases, and must not act on the terminal of whoever looks at it.
namespace lockstep::ctl {

// A text of ours that has several lines; its newlines are printed as they are.
struct Lines {
  std::string_view text;
};

namespace print_internal {
template <class Value>
auto Shown(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return value;
  } else {
    return Printable(fmt::vformat("{}", fmt::make_format_args(value)));
  }
}
inline std::string Shown(const Lines& lines) { return Printable(lines.text, /*keep_lines=*/true); }
template <class Value>
using ShownAs = decltype(Shown(std::declval<const Value&>()));
}  // namespace print_internal

// As fmt::print, with every argument that is no number made printable.
template <class... Args>
void Print(std::FILE* to, fmt::format_string<const print_internal::ShownAs<Args>&...> format,
           const Args&... args) {
  fmt::print(to, format,
             static_cast<const print_internal::ShownAs<Args>&>(print_internal::Shown(args))...);
}
template <class... Args>
void Print(fmt::format_string<const print_internal::ShownAs<Args>&...> format,
           const Args&... args) {
  Print(stdout, format, args...);
}

}  // namespace lockstep::ctl
