#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// A text for a terminal, which would do what control characters say, show a line as two, or show it
// in another order than it has: such characters are written as in JSON (\n, \u001b, \u202e), bytes
// that are no UTF-8 as \x9b. In place of JSON it stays the same JSON. `keep_lines`: the text is
// ours and has several lines; newlines stay.
std::string Printable(std::string_view text, bool keep_lines = false);

}  // namespace lockstep
