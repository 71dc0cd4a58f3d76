#include "ctl/command/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>

#include "platform/text.h"

namespace lockstep::ctl {
namespace {

std::string_view Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first character of a text, which is not empty; what is no UTF-8 counts byte by byte.
struct Character {
  size_t bytes = 1;
  int columns = 1;
};
Character FirstOf(std::string_view text) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (length == 1 || length > text.size() || !ValidUtf8(text.substr(0, length))) return {};
  wchar_t point = static_cast<wchar_t>(lead & (0x7FU >> length));
  for (size_t i = 1; i < length; ++i) {
    point = static_cast<wchar_t>(point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F));
  }
  const locale_t before = uselocale(utf8);
  const int columns = wcwidth(point);
  uselocale(before);
  return {length, columns < 0 ? 1 : columns};
}

}  // namespace

int WidthOf(std::FILE* to) {
  winsize size{};
  if (isatty(fileno(to)) != 0 && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  int columns = 0;
  return ParseWhole(Environment("COLUMNS"), &columns) ? std::max(columns, 0) : 0;
}

bool HasColour(std::FILE* to) {
  return isatty(fileno(to)) != 0 && Environment("NO_COLOR").empty() &&
         Environment("TERM") != "dumb" && !Environment("TERM").empty();
}

std::string Painted(std::string_view text, Style style, bool colour) {
  if (!colour || style == Style::kPlain || text.empty()) return std::string(text);
  constexpr const char* kCodes[] = {"0", "1", "2", "32", "33", "31"};
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<int>(style)], text);
}

std::string Painted(std::string_view text, Style style, std::FILE* to) {
  return Painted(text, style, HasColour(to));
}

int WidthOf(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character first = FirstOf(text);
    width += first.columns;
    text.remove_prefix(first.bytes);
  }
  return width;
}

std::string Cut(std::string_view text, int width) {
  if (WidthOf(text) <= width) return std::string(text);
  std::string_view rest = text;
  int used = 1;  // the "…"
  while (!rest.empty()) {
    const Character first = FirstOf(rest);
    if (used + first.columns > width) break;
    used += first.columns;
    rest.remove_prefix(first.bytes);
  }
  std::string cut(text.substr(0, text.size() - rest.size()));
  while (cut.ends_with(' ')) cut.pop_back();
  return cut + "…";
}

}  // namespace lockstep::ctl
