#include "platform/shown_address.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view kEndsAddress = ", \t\r\n\"'<>";

uint32_t NumberOf(std::string_view text) {  // FNV-1a
  uint32_t number = 2'166'136'261U;
  for (const char c : text) number = (number ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return number;
}

}  // namespace

std::string ShownAddresses(std::string_view text) {
  std::string shown;
  while (true) {
    const size_t begin = std::min(text.find("http://"), text.find("https://"));
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(kEndsAddress, begin), text.size());
    const size_t query = std::min(text.find('?', begin), end);
    shown += text.substr(0, query);
    if (query < end) shown += fmt::format("?{:08x}", NumberOf(text.substr(query, end - query)));
    text.remove_prefix(end);
  }
  return shown += text;
}

}  // namespace lockstep
