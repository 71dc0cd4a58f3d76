#pragma once

#include <cstdio>
#include <string>
#include <string_view>

// What lockstepctl knows of the terminal that it writes to.
namespace lockstep::ctl {

enum class Style { kPlain, kBold, kDim, kGood, kWarning, kBad };

// Columns of the terminal; COLUMNS where there is none; 0 = as wide as it gets.
int WidthOf(std::FILE* to);
// On a terminal that can, unless NO_COLOR is set (no-color.org).
bool HasColour(std::FILE* to);

// The text in its style, where `to` has colour.
std::string Painted(std::string_view text, Style style, std::FILE* to);
std::string Painted(std::string_view text, Style style, bool colour);

// How many columns a terminal gives a text: two for wide characters, none for combining ones.
int WidthOf(std::string_view text);
// The text in at most so many columns; a cut one ends with "…". REQUIRES: width > 0.
std::string Cut(std::string_view text, int width);

}  // namespace lockstep::ctl
